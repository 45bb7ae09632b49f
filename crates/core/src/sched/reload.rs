//! Other settings while requests wait and run.

use super::predict::Forecast;
use super::queue::{Over, Waiting};
use super::{Scheduler, Settings};
use crate::time::Tick;

impl Scheduler {
    /// Goes by other settings from the next decision on.
    ///
    /// What waits stays, with the time of its arrival: it is ranked, and with predictions judged, as if the new
    /// settings had always held, and expires by the new budget. That holds for what is more than a lowered bound,
    /// too. What runs goes on with the deadline that it was given.
    ///
    /// **Tenants and backends are known by their place.** A place that the settings leave out stays as it is, so that
    /// what waits and runs of a tenant that is gone still ends; further tenants are added, further backends are not.
    pub fn reload(&mut self, now: Tick, settings: &Settings) {
        self.backends.reload(&settings.backends);
        self.affinity_slack = settings.affinity_slack;
        (self.cost, self.budget) = (settings.cost, settings.budget);
        (self.depth, self.max_bytes) = (settings.depth, settings.max_bytes);
        self.over = Over { permits: 0, queued: self.queue.len(), bytes: self.queue.bytes() };
        self.reload_forecast(now, settings);
        let waiting = self.queue.reload(settings.order, settings.guard, &settings.tenants);
        let all = waiting.map(|waiting| self.seen_anew(&waiting)).collect();
        self.queue.put_back(all);
        self.aborts = self.queue.aborts() || self.running.next_lost().is_some();
    }

    fn reload_forecast(&mut self, now: Tick, settings: &Settings) {
        let Some(predict) = settings.predict else {
            self.forecast = None;
            return;
        };
        if let Some(forecast) = &mut self.forecast {
            forecast.reload(settings.cost, predict, settings.price);
            return;
        }
        let mut forecast = Forecast::new(settings.cost, predict, settings.price);
        for (id, work) in self.running.iter() {
            forecast.adopt(now, *id, work, self.queue.lane_of(work.tenant), &self.lengths);
        }
        self.forecast = Some(forecast);
    }

    /// A waiting request as the settings of this moment see it.
    fn seen_anew(&self, waiting: &Waiting) -> Waiting {
        let mut anew = self.waiting(waiting.arrived, waiting.id, &waiting.offer());
        if let Some(forecast) = &self.forecast {
            (anew.latest, anew.rank) = forecast.rejudge(&anew, self.queue.lane_of(anew.tenant));
        }
        anew
    }
}

#[cfg(test)]
mod tests;
