//! What was learned, kept in a file over a restart.
//!
//! The file is replaced as a whole: what is written goes to a file beside it, which then takes its name. So a
//! crash leaves the last state, or the one before it. A file that cannot be read is put aside, not overwritten.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elasticserve_core::ids::TenantId;
use elasticserve_core::sched::Learned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::config::{State, Tenant};
use crate::live::Live;
use crate::metrics::{Kept, Metrics};
use crate::pool::{Pool, Pools};

/// The most bytes of a state file that are read: far more than the bounds of what is learned can fill.
const MAX_BYTES: u64 = 256 << 20;

/// Reads the state at the start, and writes it once so that a file that cannot be written is found now.
///
/// # Errors
/// Those of reading, putting aside or writing the file.
pub(crate) fn restore(state: &State, tenants: &[Tenant], pools: &Pools, metrics: &Metrics) -> io::Result<()> {
    let kept = match read(&state.file)? {
        None => Kept::Fresh,
        Some(text) => match take(&text, tenants, pools) {
            Ok(()) => Kept::Restored,
            Err(problem) => {
                let aside = beside(&state.file, ".bad");
                fs::rename(&state.file, &aside)?;
                tracing::warn!(
                    file = %state.file.display(), aside = %aside.display(), problem,
                    "the state cannot be used and was put aside; nothing is known of the lengths of answers"
                );
                Kept::Rejected
            }
        },
    };
    metrics.state_is(kept);
    tracing::info!(file = %state.file.display(), ?kept, "state");
    write(&state.file, &text(tenants, pools)?)
}

fn read(file: &Path) -> io::Result<Option<String>> {
    let file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    // What is no text is refused with what is no state.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// What several pools have learned; one alone is written as it is.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByPool {
    pools: BTreeMap<String, Learned>,
}

fn take(text: &str, tenants: &[Tenant], pools: &Pools) -> Result<(), String> {
    let place = |name: &str| tenants.iter().position(|t| t.name == name).map(|i| TenantId(i as u16));
    if let [only] = pools.all() {
        let learned: Learned = serde_json::from_str(text).map_err(|e| e.to_string())?;
        return only.admission.restore(&learned, place).map_err(|e| e.to_string());
    }
    let read: ByPool = serde_json::from_str(text).map_err(|e| e.to_string())?;
    for pool in pools.all() {
        if let Some(learned) = read.pools.get(&pool.name) {
            pool.admission.restore(learned, place).map_err(|e| format!("pool {}: {e}", pool.name))?;
        }
    }
    Ok(())
}

fn text(tenants: &[Tenant], pools: &Pools) -> io::Result<String> {
    let learned = |pool: &Pool| pool.admission.learned(|id| tenants.get(id.index()).map(|t| t.name.clone()));
    let text = match pools.all() {
        [only] => serde_json::to_string(&learned(only)),
        all => serde_json::to_string(&ByPool { pools: all.iter().map(|p| (p.name.clone(), learned(p))).collect() }),
    };
    Ok(text? + "\n")
}

/// Replaces the file.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = beside(file, ".new");
    let mut out = File::create(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Writes the state every now and then, and once more when it is told to stop.
pub(crate) struct Keeper {
    pub(crate) state: State,
    pub(crate) live: Arc<Live>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Keeper {
    pub(crate) async fn run(self, stop: CancellationToken) {
        let keeper = Arc::new(self);
        loop {
            let wait = tokio::time::sleep(keeper.state.interval.to_std());
            let stopped = stop.run_until_cancelled(wait).await.is_none();
            let writing = Arc::clone(&keeper);
            // A slow disk holds up this task, not the requests.
            match tokio::task::spawn_blocking(move || writing.write()).await {
                Ok(Ok(())) => {}
                failed => {
                    keeper.metrics.state_not_written();
                    tracing::warn!(file = %keeper.state.file.display(), ?failed, "the state could not be written");
                }
            }
            if stopped {
                return;
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        write(&self.state.file, &text(&self.live.now().tenants, &self.pools)?)
    }
}
