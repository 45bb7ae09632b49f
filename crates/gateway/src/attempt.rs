//! Sending what was granted a permit; to another backend if the first one fails before anything of the answer came.

use std::future::poll_fn;
use std::sync::Arc;

use elasticserve_core::gate::Verdict;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::Used;
use http::{Response, StatusCode};
use hyper::body::Incoming;

use crate::admit::Waiting;
use crate::endpoint::Stay;
use crate::metrics::Meter;
use crate::permit::Permit;
use crate::pool::Pool;
use crate::proxy::Shared;
use crate::reply::Refusal;
use crate::upstream::{Outgoing, UpstreamError};

/// A permit, and the stay at its backend.
pub(crate) struct Held {
    pub(crate) permit: Permit,
    pub(crate) stay: Stay,
}

/// How the attempts ended.
pub(crate) enum Attempted {
    /// With a response's head.
    Answered(Response<Incoming>, Held),
    /// Without; the number of the last backend. All that was held is back.
    Failed(Refusal, u32),
}

/// How one attempt ended.
enum Sent {
    Answered(Response<Incoming>),
    Failed(UpstreamError),
    Lost,
}

impl Held {
    fn begin(pool: &Arc<Pool>, permit: Permit) -> Option<Self> {
        let endpoint = pool.endpoint(permit.backend())?;
        Some(Self { stay: Stay::begin(Arc::clone(pool), endpoint), permit })
    }

    fn number(&self) -> u32 {
        self.stay.endpoint.number
    }

    /// Leaves the backend and waits for another one.
    fn fail_over(self) -> Result<Waiting, Self> {
        let Self { permit, stay } = self;
        permit.fail_over().map_err(|permit| Self { permit, stay })
    }
}

impl Sent {
    /// What it says about the backend. What the client is to blame for says nothing, nor does 429: a backend that is
    /// busy is well.
    fn verdict(&self) -> Verdict {
        match self {
            Self::Answered(response) if response.status().is_client_error() => Verdict::Neutral,
            Self::Answered(response) if is_failure(response.status()) => Verdict::Fails,
            Self::Answered(_) => Verdict::Works,
            Self::Failed(error) if error.is_own() => Verdict::Neutral,
            Self::Lost => Verdict::Neutral,
            Self::Failed(_) => Verdict::Fails,
        }
    }
}

/// Whether a status says that the backend cannot, rather than that it will not.
fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

impl Shared {
    /// Sends a request to the backend of its permit, and once more to another one if that fails.
    pub(crate) async fn attempt(
        &self,
        pool: &Arc<Pool>,
        outgoing: &Outgoing,
        permit: Permit,
        meter: &mut Meter,
    ) -> Attempted {
        let mut permit = permit;
        let mut may_move = true;
        loop {
            let Some(mut held) = Held::begin(pool, permit) else {
                // A permit's backend is in its place before the permit is given.
                return Attempted::Failed(Refusal::Gone, 0);
            };
            meter.sent_to(held.number());
            let sent = self.send_once(outgoing, &mut held).await;
            let verdict = sent.verdict();
            held.stay.judge(verdict);
            let number = held.number();
            if verdict == Verdict::Fails && std::mem::take(&mut may_move) {
                match held.fail_over() {
                    Ok(waiting) => {
                        let problem = problem(&sent);
                        drop(sent);
                        tracing::info!(backend = number, problem, "a request goes to another backend");
                        match waiting.answer().await {
                            Ok(other) => {
                                self.metrics.failed_over(&pool.name, true);
                                permit = other;
                                continue;
                            }
                            Err(refused) => {
                                self.metrics.failed_over(&pool.name, false);
                                meter.shadowed(refused.shadow);
                                return Attempted::Failed(Refusal::Stranded(problem), number);
                            }
                        }
                    }
                    Err(back) => held = back,
                }
            }
            return match sent {
                Sent::Answered(response) => Attempted::Answered(response, held),
                Sent::Failed(error) => give_up(Refusal::Upstream(error), How::BackendFailed, held, meter),
                Sent::Lost => give_up(Refusal::DeadlineLost, How::Aborted, held, meter),
            };
        }
    }

    async fn send_once(&self, outgoing: &Outgoing, held: &mut Held) -> Sent {
        let permit = &mut held.permit;
        let sending = self.upstream.send(&held.stay.endpoint.backend, outgoing);
        // What is dropped unfinished closes its connection to the backend.
        tokio::select! {
            biased;
            sent = sending => match sent {
                Ok(response) => Sent::Answered(response),
                Err(error) => Sent::Failed(error),
            },
            () = poll_fn(|cx| permit.poll_lost(cx)) => Sent::Lost,
        }
    }
}

fn problem(sent: &Sent) -> String {
    match sent {
        Sent::Answered(response) => format!("it answered {}", response.status()),
        Sent::Failed(error) => error.to_string(),
        Sent::Lost => String::new(),
    }
}

fn give_up(refusal: Refusal, how: How, held: Held, meter: &mut Meter) -> Attempted {
    let number = held.number();
    tracing::debug!(backend = number, error = %refusal, "no answer from the backend");
    meter.shadowed(held.permit.release(how, Used::default()));
    Attempted::Failed(refusal, number)
}
