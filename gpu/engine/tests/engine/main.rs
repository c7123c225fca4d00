//! The engine, stepped by hand: packets, fences, logs, faults, suspension, reset, paging.

mod amid;
mod charges;
mod faults;
mod fences;
mod fused;
mod global;
mod halted;
mod hostile;
mod limits;
mod locks;
mod logs;
mod looks;
mod mappings;
mod monitored;
mod packet_mode;
mod packet_room;
mod packets;
mod preemption;
mod promises;
mod replaced;
mod rings;
mod scheduling;
mod scheduling_logs;
mod seams;
mod sentences;
mod slots;
mod spaces;
mod stretches;
#[path = "../support/mod.rs"]
mod support;
mod taken_off;
mod turns;
mod unplanned;
mod waking;

/// Each of these tests fails with the mutation that it is there for.
#[cfg(feature = "mutants")]
#[test]
fn what_is_left_out_is_noticed() {
    use gpu_engine::mutation::Mutation;
    let rows: &[(Mutation, fn())] = &[
        (Mutation::ForgetsEngineResets, taken_off::a_packet_that_an_engine_reset_gave_back_goes_on_without_the_flag),
        (Mutation::NextRingGoesOn, rings::the_old_ring_runs_to_its_end_before_the_new_one_begins_at_zero),
        (Mutation::LeavesUnlooked, rings::what_is_published_in_front_of_another_ring_runs_where_the_engine_rests),
        (Mutation::RunsAside, rings::nothing_runs_while_a_ring_is_set_aside),
        (Mutation::FlushNotWaited, packet_mode::paging_packets_change_translations_only_after_every_engine_let_go),
        (Mutation::DropOnOverflow, fences::an_overflowing_mailbox_asks_for_a_scan_of_everything),
        (Mutation::ReportsWhileHeld, fences::a_fence_that_no_engine_signals_is_reported_by_a_node_that_is_not_held),
        (Mutation::WritesDeadFence, fences::an_always_signaled_fence_passes_waits_and_drops_signals),
        (Mutation::StoresNarrowWide, monitored::a_narrow_signal_stores_32_bits),
        (Mutation::SignalsUnable, monitored::an_unable_engine_writes_its_progress_fence_only),
        (Mutation::MapsNeighbours, mappings::a_mapping_covers_what_was_asked_for),
        (Mutation::MapsWritable, mappings::what_is_only_read_is_mapped_for_reading),
        (Mutation::MergesByAddress, amid::signals_of_two_fences_at_one_address_wake_what_waits_for_each),
        (Mutation::DrawsAtTheEnd, amid::a_signal_wakes_in_front_of_the_second_cold_page),
        (Mutation::OwnEntryLate, fused::no_interrupt_is_ahead_of_its_own_entry),
        (Mutation::StretchPassesStore, stretches::a_store_to_a_fences_word_comes_behind_the_signals_before_it),
        (Mutation::IndexBeforeEntry, logs::the_index_is_written_behind_the_entry),
        (Mutation::AnswersResumed, limits::a_suspension_that_was_taken_back_is_not_answered),
        (Mutation::KeepsMarkWhenFull, fences::an_overflowing_mailbox_asks_for_a_scan_of_everything),
        (Mutation::ForgetsFailedInterrupt, fences::an_interrupt_that_cannot_be_raised_is_asked_for_again),
        (Mutation::WatchesDestroyed, limits::a_destroyed_queue_is_not_watched),
        (Mutation::BelievesWritePointer, faults::hostile_write_pointers_fault_their_queue),
        (Mutation::StarvedKeepsWindows, limits::an_engine_that_is_short_of_memory_keeps_nothing_mapped),
        (Mutation::RunsWhenFull, limits::an_engine_whose_reports_have_no_room_runs_nothing),
        (Mutation::KernelQueueStays, limits::a_kernel_queue_leaves_its_engine_between_two_buffers),
        (Mutation::ReportsLostSuspension, limits::a_suspension_of_a_context_that_a_reset_takes_is_not_answered),
        (Mutation::ForgetsRefused, packet_room::a_packet_that_is_not_kept_counts_as_completed_behind_the_others),
        (Mutation::BeginsAnew, taken_off::a_packet_that_is_taken_off_goes_on_under_another_fence),
        (Mutation::CountsTakenOff, taken_off::a_packet_that_is_taken_off_goes_on_under_another_fence),
        (Mutation::FencesRunBack, taken_off::a_paging_packet_that_comes_back_does_not_run_the_fences_back),
        (Mutation::WakesAllAtOnce, charges::a_signal_is_charged_by_the_queues_that_it_wakes),
        (Mutation::GrantsLater, waking::a_wait_that_begins_behind_the_store_reads_the_value),
        (Mutation::HoldForgetsWakes, waking::an_engine_that_is_held_wakes_them_all),
        (Mutation::ReportsSuspensionsOfLost, limits::a_suspension_is_not_answered_behind_an_adapter_reset),
        (Mutation::HeldKeepsReports, limits::what_an_engine_held_with_is_over_when_the_adapters_reset_follows),
        (Mutation::OldEngineGoesOn, replaced::an_engine_that_was_given_up_touches_nothing_when_it_comes_back),
        (Mutation::KeepsWindows, mappings::nothing_is_mapped_of_a_ring_that_may_be_evicted),
        (Mutation::RoundsBeginAnew, global::ringing_without_an_end_leaves_no_queue_out),
        (Mutation::RoundsForgetRings, global::a_ring_during_a_round_begins_another),
        (Mutation::KeepsTheTurn, global::queues_that_always_have_work_have_turns_one_after_the_other),
        (Mutation::BacklogKeepsPackets, limits::ends_of_packets_that_had_no_room_are_over_with_a_reset),
    ];
    for (mutation, test) in rows {
        test();
        support::MUTATION.set(*mutation as u32);
        let outcome = std::panic::catch_unwind(test);
        support::MUTATION.set(0);
        assert!(outcome.is_err(), "{} was not noticed", mutation.name());
    }
}
