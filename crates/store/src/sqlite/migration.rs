//! The numbered migrations. The list only grows: what was released is never changed.

/// The migrations in order. The number of the last one is the schema's version.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("../../migrations/sqlite/0001_ledger.sql")];

/// What tells a database of Tidemill from those of other programs: "TidM".
pub(crate) const APPLICATION_ID: i64 = 0x5469_644d;

/// The version that this binary knows.
pub(crate) fn known_version() -> u32 {
    u32::try_from(MIGRATIONS.len()).expect("there are fewer than four thousand million migrations")
}
