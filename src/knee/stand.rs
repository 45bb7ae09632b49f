//! Where probes are made and how requests get there, by flags.

use std::path::PathBuf;

use elasticserve_core::sched::{Rules, RulesError};
use elasticserve_core::sim::reproduce::GatewayTimes;
use elasticserve_gateway::config::RawConfig;
use elasticserve_load::BaseUrl;

use crate::cmd::{BadConfig, BadUsage, profile};
use crate::lab::{Gate, Stand, Way};

const STAND: &str = "Stand";
/// What the gateway takes for itself unless something else is said.
const PERMITS: u32 = 32;

/// What is probed.
#[derive(clap::Args)]
pub(crate) struct StandArgs {
    /// The simulator, on virtual time, in place of a server.
    #[arg(long, conflicts_with_all = ["url", "mock"], help_heading = STAND)]
    pub(crate) sim: bool,
    /// A built-in engine server of its own, in real time, in place of a server that is there.
    #[arg(long, conflicts_with = "url", help_heading = STAND)]
    pub(crate) mock: bool,
    /// The engine of --sim and --mock: the name of a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT, help_heading = STAND)]
    profile: String,
    /// How many times faster than real time --mock and all that is offered to it run; rates and times stay those of
    /// the profile.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed, help_heading = STAND)]
    speed: f64,
    /// A gateway with this policy in front, started for each probe: an order, perhaps with an admission, such as
    /// fcfs+budget:750ms.
    #[arg(long, value_name = "POLICY", value_parser = parse_rules, help_heading = STAND)]
    policy: Option<Rules>,
    /// A gateway with this configuration in front; its listeners and backends are not used.
    #[arg(long, value_name = "CONFIG.toml", conflicts_with = "policy", help_heading = STAND)]
    gateway: Option<PathBuf>,
    /// Requests that the engine may work on at once, by that gateway [default: 32].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = STAND)]
    permits: Option<u32>,
}

impl StandArgs {
    /// The stand, with the server that the load names.
    ///
    /// # Errors
    /// None or several are named, or a profile is wrong.
    pub(crate) fn stand(&self, url: Option<&BaseUrl>) -> anyhow::Result<Stand> {
        if self.sim {
            let (profile, gateway) = (Box::new(profile::load(&self.profile)?), GatewayTimes::default());
            return Ok(Stand::Simulator { profile, gateway });
        }
        if self.mock {
            profile::load(&self.profile)?;
            return Ok(Stand::Mock { profile: self.profile.clone(), speed: self.speed });
        }
        if self.speed != 1.0 {
            return Err(BadUsage("--speed is of --mock: a server that is there has its own".to_owned()).into());
        }
        let missing = || BadUsage("say what to probe: --url URL, --mock, or --sim".to_owned());
        Ok(Stand::Servers(vec![url.ok_or_else(missing)?.clone()]))
    }

    /// The way to it.
    ///
    /// # Errors
    /// A configuration of the gateway that is wrong.
    pub(crate) fn way(&self) -> anyhow::Result<Way> {
        let permits = self.permits.unwrap_or(PERMITS);
        if let Some(file) = &self.gateway {
            let bad = |problem: &dyn std::fmt::Display| BadConfig(format!("--gateway {}: {problem}", file.display()));
            let config = RawConfig::from_file(file).map_err(|e| bad(&e))?;
            return Ok(Way::Gateway(Box::new(Gate { config, permits })));
        }
        match (self.policy, self.permits) {
            (Some(rules), _) => Ok(Way::gateway(rules, permits)),
            (None, Some(_)) => Ok(Way::gateway(parse_rules("fcfs").map_err(BadUsage)?, permits)),
            (None, None) => Ok(Way::Direct),
        }
    }

    /// Stand and way in words.
    pub(crate) fn describe(&self, url: Option<&BaseUrl>) -> String {
        let engine = match url {
            _ if self.sim => format!("the simulator with profile {}", self.profile),
            _ if self.mock && self.speed == 1.0 => format!("a mock engine with profile {}", self.profile),
            _ if self.mock => format!("a mock engine with profile {}, {} times its speed", self.profile, self.speed),
            Some(url) => url.to_string(),
            None => "nothing".to_owned(),
        };
        let permits = self.permits.unwrap_or(PERMITS);
        match (&self.gateway, self.policy) {
            (Some(file), _) => format!("{engine}, behind a gateway by {} with {permits} permits", file.display()),
            (None, Some(rules)) => format!("{engine}, behind a gateway with {rules} and {permits} permits"),
            (None, None) if self.permits.is_some() => {
                format!("{engine}, behind a gateway with fcfs and {permits} permits")
            }
            (None, None) => format!("{engine}, direct"),
        }
    }
}

fn parse_rules(text: &str) -> Result<Rules, String> {
    text.parse().map_err(|e: RulesError| e.to_string())
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| *speed > 0.0 && *speed <= 1000.0);
    speed.ok_or_else(|| "the speed is a number above 0, at most 1000, such as 10".to_owned())
}
