//! Points in time for people, in the time zone of whoever reads.

use jiff::tz::TimeZone;
use tidemill_core::Timestamp;

/// `2026-03-01 09:30:00+01:00`.
pub(crate) fn date(at: Timestamp) -> String {
    date_in(at, TimeZone::system())
}

/// `09:30:00.123`.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    zoned(at, TimeZone::system())
        .strftime("%H:%M:%S%.3f")
        .to_string()
}

fn date_in(at: Timestamp, zone: TimeZone) -> String {
    zoned(at, zone).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// A time that no calendar has is shown as the beginning of 1970.
fn zoned(at: Timestamp, zone: TimeZone) -> jiff::ZonedDateTime {
    jiff::Timestamp::from_microsecond(at.0)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned_datetime(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_whole() {
        let at = Timestamp(1_772_355_000_123_456);
        assert_eq!(date_in(at, TimeZone::UTC), "2026-03-01 08:50:00+00:00");
        assert_eq!(
            date_in(Timestamp(i64::MAX), TimeZone::UTC),
            "1970-01-01 00:00:00+00:00"
        );
    }
}
