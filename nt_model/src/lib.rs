//! A model of the NT kernel services a driver imports, and a loader for PE images.
