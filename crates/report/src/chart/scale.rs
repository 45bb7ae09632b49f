//! From values to places, and round values to mark.

/// A linear scale.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Scale {
    low: f64,
    most: f64,
    from: f64,
    to: f64,
    step: f64,
}

impl Scale {
    /// A scale from 0 to at least `most`, drawn from `from` to `to`, with about `marks` round marks. Its end
    /// is a mark if `round` is set, else `most` itself.
    pub(crate) fn new(most: f64, from: f64, to: f64, marks: u32, round: bool) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = round_step(most / f64::from(marks.max(1)));
        let most = if round { (most / step - 1e-9).ceil() * step } else { most };
        Self { low: 0.0, most, from, to, step }
    }

    /// A scale over all of the values, drawn from `from` to `to`, with about `marks` round marks and a mark at each end.
    pub(crate) fn over(values: impl IntoIterator<Item = f64>, from: f64, to: f64, marks: u32) -> Self {
        let finite = values.into_iter().filter(|v| v.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = match (low, high) {
            (low, high) if low < high => (low, high),
            // A single value gets room on both sides.
            (one, other) if one == other && one != 0.0 => (one - one.abs() / 2.0, one + one.abs() / 2.0),
            _ => (0.0, 1.0),
        };
        let step = round_step((high - low) / f64::from(marks.max(1)));
        let low = (low / step + 1e-9).floor() * step;
        Self { low, most: (high / step - 1e-9).ceil() * step, from, to, step }
    }

    /// Where a value is drawn; what lies beyond an end is drawn at it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * ((value - self.low) / (self.most - self.low)).clamp(0.0, 1.0)
    }

    /// The largest value.
    pub(crate) const fn most(&self) -> f64 {
        self.most
    }

    /// The smallest value.
    pub(crate) const fn low(&self) -> f64 {
        self.low
    }

    /// The round values to mark, from the smallest.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let count = ((self.most - self.low) / self.step + 1e-9).floor() as u32;
        // A sum of steps that should be 0 is a little beside it.
        let tick = |i| (f64::from(i) + (self.low / self.step).round()) * self.step;
        (0..=count).map(tick).collect()
    }

    /// How many decimals the marks need.
    pub(crate) fn decimals(&self) -> usize {
        let fits = |d: &usize| {
            let scaled = self.step * 10f64.powi(*d as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        };
        (0..9).find(fits).unwrap_or(9)
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `least`.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10f64.powi(least.log10().floor() as i32);
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_the_largest_value() {
        let scale = Scale::new(4.7, 60.0, 620.0, 5, true);
        assert_eq!(scale.ticks(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((scale.place(0.0), scale.place(5.0), scale.place(2.5)), (60.0, 620.0, 340.0));
        assert_eq!(Scale::new(12.5, 0.0, 1.0, 6, false).ticks().last(), Some(&10.0));
        assert_eq!(Scale::new(0.03, 0.0, 1.0, 4, true).decimals(), 2);
        assert_eq!(Scale::new(300.0, 0.0, 1.0, 4, true).ticks(), [0.0, 100.0, 200.0, 300.0]);
    }

    #[test]
    fn a_scale_over_values_has_round_ends_around_all_of_them() {
        let scale = Scale::over([0.62, 0.87], 0.0, 100.0, 5);
        assert_eq!((scale.low(), scale.most()), (0.6000000000000001, 0.9));
        assert_eq!(Scale::over([-1.5, 4.0], 0.0, 1.0, 5).ticks(), [-2.0, 0.0, 2.0, 4.0]);
        let alone = Scale::over([8.0], 0.0, 100.0, 4);
        assert_eq!((alone.low(), alone.most(), alone.place(8.0)), (4.0, 12.0, 50.0));
        assert_eq!(Scale::over([], 0.0, 100.0, 4).place(0.5), 50.0);
    }

    #[test]
    fn a_scale_of_nothing_is_still_a_scale() {
        for most in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let scale = Scale::new(most, 0.0, 100.0, 5, true);
            assert!(scale.place(0.5).is_finite() && scale.ticks().len() > 1, "{most}");
        }
    }

    #[test]
    fn what_lies_beyond_an_end_is_drawn_at_it() {
        let scale = Scale::new(1.0, 10.0, 20.0, 5, true);
        assert_eq!((scale.place(7.0), scale.place(-3.0)), (20.0, 10.0));
    }
}
