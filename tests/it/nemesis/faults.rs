//! What goes wrong, and when: a plan that a seed decides.

use std::fmt;
use std::time::Duration;

use elasticserve_core::rng::{Random, Stream};

/// Something that goes wrong.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// An engine is stopped, and goes on.
    Stop,
    /// An engine is killed, and started again.
    Kill,
    /// All connections to an engine are reset, once.
    Reset,
    /// What goes to an engine and comes from it is late.
    Delay,
    /// Connections to an engine are reset at once.
    Refuse,
    /// Each answer is ended cleanly in the middle of a piece.
    CutShort,
    /// The gateway may open hardly any more files.
    Squeeze,
    /// The gateway gets other permits and weights.
    Reload,
    /// The gateway gets a configuration that is wrong.
    BadReload,
    /// The gateway's configuration is gone when it is to be read.
    Vanish,
}

impl Fault {
    const OF_ENGINES: [Self; 6] = [Self::Stop, Self::Kill, Self::Reset, Self::Delay, Self::Refuse, Self::CutShort];
    const OF_THE_GATEWAY: [Self; 4] = [Self::Squeeze, Self::Reload, Self::BadReload, Self::Vanish];
    pub(super) const COUNT: usize = Self::OF_ENGINES.len() + Self::OF_THE_GATEWAY.len();
}

/// A fault, after a pause, for a time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Step {
    pub(super) pause: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
    /// What a fault needs besides: a number that it makes its own.
    pub(super) number: u64,
}

/// Steps for each engine and for the gateway, which run beside one another.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) length: Duration,
    pub(super) engines: [Vec<Step>; 2],
    pub(super) gateway: Vec<Step>,
}

impl Plan {
    pub(super) fn new(seed: u64, length: Duration) -> Self {
        let mut random = Random::new(seed, Stream::Test);
        let engines = [(); 2].map(|()| steps(&mut random, length, &Fault::OF_ENGINES));
        let gateway = steps(&mut random, length, &Fault::OF_THE_GATEWAY);
        Self { seed, length, engines, gateway }
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.engines.iter().flatten().chain(&self.gateway).map(|step| step.fault)
    }
}

fn steps(random: &mut Random, length: Duration, faults: &[Fault]) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), Duration::ZERO);
    while at < length {
        let pause = Duration::from_millis(random.between(20, 400));
        let fault = faults[random.between(0, faults.len() as u64 - 1) as usize];
        let lasts = Duration::from_millis(random.between(50, 900));
        steps.push(Step { pause, fault, lasts, number: random.next_u64() });
        at += pause + lasts;
    }
    steps
}

/// The plan as it is told of a run that failed.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "NEMESIS_SEED={} NEMESIS_PLANS=1", self.seed)?;
        let all = [("engine 0", &self.engines[0]), ("engine 1", &self.engines[1]), ("gateway", &self.gateway)];
        for (whose, steps) in all {
            write!(f, "{whose}:")?;
            for Step { pause, fault, lasts, .. } in steps {
                write!(f, " {fault:?} after {} ms for {} ms,", pause.as_millis(), lasts.as_millis())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
