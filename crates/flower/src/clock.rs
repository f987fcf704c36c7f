//! The SuperLink's time: it refuses calls whose signed time is more than seconds ahead of its own or
//! minutes behind, so a party whose clock is wrong uses the SuperLink's.

use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that is set by the dates of the SuperLink's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Clock {
    /// Seconds to add to this machine's time.
    offset: f64,
}

/// A date has whole seconds and was on its way: less than this is no difference.
const TOLERANCE: f64 = 2.0;

impl Clock {
    /// Sets it by a date in seconds since 1970; how far this machine's clock is behind, if it matters.
    pub(crate) fn set(&mut self, theirs: Option<u64>) -> Option<f64> {
        let behind = theirs? as f64 + 0.5 - system_now();
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
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Microseconds since 1970 in ISO 8601, in UTC.
fn iso(micros: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of(days.cast_signed());
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

/// The date so many days after 1970-01-01: years begin in March, so that the odd day comes last.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds since 1970 of a date as HTTP writes it: `Mon, 16 Nov 2026 13:16:41 GMT`.
pub(crate) fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|known| *known == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut parts = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = (1970..10_000).contains(&year) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (shifted, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + of_year;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_and_read_as_it_is() {
        assert_eq!(iso(1_794_834_401_123_456), "2026-11-16T13:06:41.123456+00:00");
        assert_eq!(iso(951_782_400_000_000), "2000-02-29T00:00:00.000000+00:00");
        assert_eq!(http_date("Mon, 16 Nov 2026 13:06:41 GMT"), Some(1_794_834_401));
        assert_eq!(http_date("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        for wrong in ["", "Mon, 16 Nov", "Mon, 99 Nov 2026 13:06:41 GMT", "x, 1 y 2026 1:1:1 GMT"] {
            assert_eq!(http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_clock_that_is_minutes_off_takes_the_other_ones_time() {
        let mut clock = Clock::default();
        let now = system_now();
        assert_eq!(clock.set(Some(now as u64)), None);
        let behind = clock.set(Some(now as u64 + 600)).unwrap();
        assert!((599.0..602.0).contains(&behind), "{behind}");
        assert!((599.0..602.0).contains(&(clock.now() - now)));
    }
}
