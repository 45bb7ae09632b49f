//! What simulated requests tell of their answers before they have them.

use crate::rng::mix;
use crate::work::Arrival;

/// What requests say of the length of their answers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Declares {
    /// Each the exact length.
    #[default]
    All,
    /// Every other one, at random, the exact length; the rest nothing.
    Half,
    /// Each the least of 64, 128, 256 and so on that the answer keeps to, as a hint.
    Hint,
    /// Nothing.
    None,
}

impl Declares {
    /// The least hint.
    const LEAST: u32 = 64;

    pub(super) fn length(self, arrival: &Arrival) -> Option<u32> {
        let tells = match self {
            Self::All => true,
            Self::Half => mix(2, u64::from(arrival.index)) & 1 == 0,
            Self::Hint | Self::None => false,
        };
        tells.then_some(arrival.output)
    }

    pub(super) fn hint(self, arrival: &Arrival) -> Option<u32> {
        (self == Self::Hint).then(|| arrival.output.checked_next_power_of_two().unwrap_or(u32::MAX).max(Self::LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn a_request_tells_what_its_knob_says_and_always_the_same() {
        let arrival = |index, output| Arrival { index, at: Span::ZERO, tenant: 0, input: 9, output, prompt: 0 };
        let told = |declares: Declares, a: &Arrival| (declares.length(a), declares.hint(a));
        for (output, hint) in [(1, 64), (64, 64), (65, 128), (128, 128), (200, 256), (u32::MAX, u32::MAX)] {
            let a = arrival(7, output);
            assert_eq!(told(Declares::All, &a), (Some(output), None));
            assert_eq!(told(Declares::Hint, &a), (None, Some(hint)));
            assert_eq!(told(Declares::None, &a), (None, None));
        }
        let tell = (0..10_000).filter(|index| Declares::Half.length(&arrival(*index, 50)) == Some(50)).count();
        assert!((4_800..5_200).contains(&tell), "{tell}");
    }
}
