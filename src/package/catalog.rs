//! A security catalog: a signed list of the hashes of a package's files. Here it is made, unsigned; a signer signs it.
//!
//! It is a certificate trust list within a PKCS #7 SignedData. Its member for a file has the file's hash as its
//! identifier, and as attributes the file's name, the systems that it is for, and the hash once more, in the form that
//! Authenticode signs (`SpcIndirectDataContent`).
//!
//! Source: RFC 2315 and `CTL_INFO` (wincrypt.h) for the containers; *Windows Authenticode Portable Executable Signature
//! Format* for the hash; *MakeCat* and *Creating a Catalog File for a Non-PnP Driver* for the attributes, `0x10010001`
//! and `OSAttr` among them. What inf2cat writes is not documented; what of it is not here is not known.

use super::digest::Digest;
use jiff::civil::Date;
use sha2::{Digest as _, Sha256};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, TagClass, construct_der};

const SIGNED_DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 2];
const CERTIFICATE_TRUST_LIST: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 10, 1];
const CATALOG_LIST: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 12, 1, 1];
/// Members of the second version, by SHA-256.
const CATALOG_MEMBER: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 12, 1, 3];
const NAME_VALUE: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 12, 2, 1];
const MEMBER_INFO: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 12, 2, 3];
const INDIRECT_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 4];
const IMAGE_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 15];
const LINK: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 25];
const SHA256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];

/// An attribute whose value is text, authenticated.
const TEXT: u32 = 0x1001_0001;
/// The tag of a time as two digits of the year, month, day, hours, minutes, seconds and `Z`.
const UTC_TIME: Tag = Tag { tag_class: TagClass::Universal, tag_number: 23 };

/// A file of a catalog.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name, without a folder.
    pub name: String,
    /// What is signed of it.
    pub digest: Digest,
}

/// A catalog, unsigned, of `members`, for the devices with these hardware IDs, made on this day.
///
/// The same arguments give the same bytes: the list's identifier, elsewhere a random number, is taken from the members.
pub fn catalog(members: &[Member], hardware: &[String], date: Date) -> Vec<u8> {
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_by_key(|member| member.digest.bytes);
    let mut identifier = Sha256::new();
    members.iter().for_each(|member| identifier.update(member.digest.bytes));
    let identifier = identifier.finalize();
    let day = format!("{:02}{:02}{:02}000000Z", date.year() % 100, date.month(), date.day());
    let list = construct_der(|writer| {
        writer.write_sequence(|list| {
            list.next().write_sequence(|usage| oid(usage.next(), CATALOG_LIST));
            list.next().write_bytes(&identifier[..16]);
            list.next().write_tagged_implicit(UTC_TIME, |writer| writer.write_bytes(day.as_bytes()));
            algorithm(list.next(), CATALOG_MEMBER);
            list.next().write_sequence(|all| members.iter().for_each(|found| member(all.next(), found)));
            list.next().write_tagged(Tag::context(0), |writer| {
                writer.write_sequence(|extensions| {
                    let numbered = (1..).zip(hardware).map(|(n, id)| (format!("HWID{n}"), id.to_ascii_lowercase()));
                    for (name, value) in [("OS".to_owned(), "_v100_X64".to_owned())].into_iter().chain(numbered) {
                        extensions.next().write_sequence(|extension| {
                            oid(extension.next(), NAME_VALUE);
                            extension.next().write_bytes(&construct_der(|writer| named(writer, &name, &value)));
                        });
                    }
                });
            });
        });
    });
    construct_der(|writer| {
        writer.write_sequence(|content| {
            oid(content.next(), SIGNED_DATA);
            content.next().write_tagged(Tag::context(0), |writer| {
                writer.write_sequence(|signed| {
                    signed.next().write_u32(1);
                    // No digest algorithm and no signer.
                    signed.next().write_set_of(|_| ());
                    signed.next().write_sequence(|content| {
                        oid(content.next(), CERTIFICATE_TRUST_LIST);
                        content.next().write_tagged(Tag::context(0), |writer| writer.write_der(&list));
                    });
                    signed.next().write_set_of(|_| ());
                });
            });
        });
    })
}

fn oid(writer: DERWriter<'_>, of: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(of));
}

/// An algorithm without parameters.
fn algorithm(writer: DERWriter<'_>, of: &[u64]) {
    writer.write_sequence(|algorithm| {
        oid(algorithm.next(), of);
        algorithm.next().write_null();
    });
}

/// A name and its text, which ends with a zero.
fn named(writer: DERWriter<'_>, name: &str, value: &str) {
    let value: Vec<u8> = value.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    writer.write_sequence(|pair| {
        pair.next().write_bmp_string(name);
        pair.next().write_u32(TEXT);
        pair.next().write_bytes(&value);
    });
}

/// An attribute with one value.
fn attribute(writer: DERWriter<'_>, of: &[u64], value: impl FnOnce(DERWriter<'_>)) {
    writer.write_sequence(|attribute| {
        oid(attribute.next(), of);
        attribute.next().write_set_of(|values| value(values.next()));
    });
}

fn member(writer: DERWriter<'_>, member: &Member) {
    writer.write_sequence(|entry| {
        entry.next().write_bytes(&member.digest.bytes);
        entry.next().write_set_of(|attributes| {
            let name = member.name.to_ascii_lowercase();
            attribute(attributes.next(), NAME_VALUE, |writer| named(writer, "File", &name));
            // Windows 10 and later, of the NT line.
            attribute(attributes.next(), NAME_VALUE, |writer| named(writer, "OSAttr", "2:10.0"));
            attribute(attributes.next(), INDIRECT_DATA, |writer| indirect(writer, &member.digest));
            // Empty: what describes the file is in INDIRECT_DATA.
            attribute(attributes.next(), MEMBER_INFO, |writer| {
                writer.write_tagged_implicit(Tag::context(2), |writer| writer.write_bytes(&[]));
            });
        });
    });
}

/// What kind of file was hashed, how, and the hash.
fn indirect(writer: DERWriter<'_>, digest: &Digest) {
    writer.write_sequence(|data| {
        data.next().write_sequence(|kind| {
            if digest.is_image {
                oid(kind.next(), IMAGE_DATA);
                kind.next().write_sequence(|image| {
                    // The flags IncludeResources and IncludeImportAddressTable, and an empty file name.
                    image.next().write_bitvec_bytes(&[0xA0], 3);
                    image.next().write_tagged(Tag::context(0), |writer| link(writer, ""));
                });
            } else {
                oid(kind.next(), LINK);
                link(kind.next(), "<<<Obsolete>>>");
            }
        });
        data.next().write_sequence(|hash| {
            algorithm(hash.next(), SHA256);
            hash.next().write_bytes(&digest.bytes);
        });
    });
}

/// A link to a file. Verification does not read its name.
fn link(writer: DERWriter<'_>, name: &str) {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
    writer.write_tagged(Tag::context(2), |writer| {
        writer.write_tagged_implicit(Tag::context(0), |writer| writer.write_bytes(&name));
    });
}
