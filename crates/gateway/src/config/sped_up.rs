//! The configuration in time that runs faster.

use elasticserve_core::sched::{Caution, CostModel, Predict, Price, Stall};
use elasticserve_core::time::Span;

use super::{Config, ShadowPolicy};

impl Config {
    /// The same gateway in front of an engine that is `factor` times faster, for clients whose limits are as many times
    /// shorter: the queue budget, the guard, the limits and all that it knows of the engine are scaled. Timeouts and
    /// what is kept over a restart are not: they are about the network and the machine.
    #[must_use]
    pub fn sped_up(mut self, factor: f64) -> Self {
        let scaled = |span: Span| span.scaled_down(factor);
        self.queue_budget = self.queue_budget.map(scaled);
        self.guard = scaled(self.guard);
        self.slo = self.slo.scaled_down(factor);
        for tenant in &mut self.tenants {
            tenant.slo = tenant.slo.scaled_down(factor);
        }
        self.cost = CostModel {
            overhead: scaled(self.cost.overhead),
            prefill_per_token: scaled(self.cost.prefill_per_token),
            idle_tpot: scaled(self.cost.idle_tpot),
            ..self.cost
        };
        let predict = |p: Predict| Predict { caution: Caution { pad: scaled(p.caution.pad), ..p.caution } };
        let price = |p: Price| Price { stall: stall(p.stall, factor), ..p };
        self.predict = self.predict.map(predict);
        self.price = self.price.map(price);
        self.shadow = self.shadow.map(|shadow| ShadowPolicy {
            predict: shadow.predict.map(predict),
            price: shadow.price.map(price),
            ..shadow
        });
        self
    }
}

fn stall(stall: Stall, factor: f64) -> Stall {
    Stall {
        per_token_ms: stall.per_token_ms / factor,
        attention_ms: stall.attention_ms / factor,
        kv_ms_per_token: stall.kv_ms_per_token / factor,
        sequence_ms: stall.sequence_ms / factor,
        ..stall
    }
}

#[cfg(test)]
mod tests {
    use super::super::RawConfig;
    use super::*;

    #[test]
    fn what_is_said_about_time_is_scaled_and_what_is_counted_stays() {
        let text = "[[backends]]\nurl = 'http://a:1'\npermits = 7\n[slo]\nttft = '1s'\ne2e = '15s'\n\
                    [queue]\norder = 'least-slack'\nadmission = 'price'\nfairness = 0.4\ndepth = 9\n\
                    [predict]\nprofile = 'gb10-qwen3-8b-fp8'\npad = '40ms'\n[timeouts]\ndrain = '30s'\n";
        let usual = RawConfig::from_toml(text).unwrap().check().unwrap();
        let fast = usual.clone().sped_up(4.0);
        assert_eq!(fast.slo.ttft, Some(Span::from_millis(250)));
        assert_eq!(fast.tenants[0].slo.e2e, Some(Span::from_millis(3750)));
        assert_eq!(fast.predict.unwrap().caution.pad, Span::from_millis(10));
        assert_eq!(fast.cost.idle_tpot, usual.cost.idle_tpot.scaled_down(4.0));
        let (slow, quick) = (usual.price.unwrap(), fast.price.unwrap());
        assert_eq!(quick.stall.per_token_ms * 4.0, slow.stall.per_token_ms);
        assert_eq!((quick.stall.free_tokens, quick.mu), (slow.stall.free_tokens, slow.mu));
        assert_eq!((fast.queue_depth, fast.backends, fast.timeouts), (9, usual.backends, usual.timeouts));
        assert_eq!(fast.cost.first_token_steps, usual.cost.first_token_steps);
    }
}
