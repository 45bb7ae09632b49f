//! From values to places, and round values to mark.

/// A linear scale that starts at 0.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Scale {
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
        Self { most, from, to, step }
    }

    /// Where a value is drawn; what lies beyond an end is drawn at it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.most).clamp(0.0, 1.0)
    }

    /// The largest value.
    pub(crate) const fn most(&self) -> f64 {
        self.most
    }

    /// The round values to mark, from 0.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let count = (self.most / self.step + 1e-9).floor() as u32;
        (0..=count).map(|i| f64::from(i) * self.step).collect()
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
