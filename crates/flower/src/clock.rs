//! The SuperLink's time: it refuses calls whose signed time is more than seconds ahead of its own or
//! minutes behind, so a party whose clock is wrong uses the SuperLink's.

use std::time::{SystemTime, UNIX_EPOCH};

use time::UtcDateTime;

/// A clock that is set by the dates of the SuperLink's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Clock {
    /// Seconds to add to this machine's time.
    offset: f64,
}

/// A date has whole seconds and was on its way: less than this is no difference.
const TOLERANCE: f64 = 2.0;

impl Clock {
    /// Sets it by a date; how far this machine's clock is behind, if it matters.
    pub(crate) fn set(&mut self, theirs: Option<SystemTime>) -> Option<f64> {
        let behind = seconds(theirs?) + 0.5 - system_now();
        if behind.abs() < TOLERANCE {
            self.offset = 0.0;
            return None;
        }
        self.offset = behind;
        Some(behind)
    }

    /// Seconds since 1970.
    pub(crate) fn now(self) -> f64 {
        system_now() + self.offset
    }

    /// The time in ISO 8601, to the microsecond.
    pub(crate) fn timestamp(self) -> String {
        iso((self.now() * 1e6) as u64)
    }
}

fn system_now() -> f64 {
    seconds(SystemTime::now())
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Microseconds since 1970 in ISO 8601, in UTC.
fn iso(micros: u64) -> String {
    let since = time::Duration::microseconds(micros.cast_signed());
    let time = UtcDateTime::UNIX_EPOCH.checked_add(since).unwrap_or(UtcDateTime::MAX);
    let (hour, minute, second) = time.as_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{:06}+00:00", time.date(), time.microsecond())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_date_is_written_as_it_is() {
        assert_eq!(iso(1_794_834_401_123_456), "2026-11-16T13:06:41.123456+00:00");
        assert_eq!(iso(951_782_400_000_000), "2000-02-29T00:00:00.000000+00:00");
        assert_eq!(iso(1 << 62), "9999-12-31T23:59:59.999999+00:00", "a date that nobody believes");
    }

    #[test]
    fn a_clock_that_is_minutes_off_takes_the_other_ones_time() {
        let mut clock = Clock::default();
        let (today, now) = (SystemTime::now(), system_now());
        assert_eq!(clock.set(Some(today)), None);
        let behind = clock.set(Some(today + Duration::from_mins(10))).unwrap();
        assert!((599.0..602.0).contains(&behind), "{behind}");
        assert!((599.0..602.0).contains(&(clock.now() - now)));
    }
}
