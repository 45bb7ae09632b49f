//! What can be added to a plan: who sends, and what prompts hold.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::super::detail::Detail;
use super::{Arrival, Plan, PlanError};
use crate::time::Span;
use crate::work::{ArrivalProcess, Dataset, LoadModel, Prefix, TextRef, Turn};

impl Plan {
    /// The same arrivals as the supply of a closed load: each of so many workers takes the next one when its last
    /// has ended, until the supply has been drawn, or the window has passed if there is one.
    #[must_use]
    pub fn as_supply(mut self, workers: NonZeroU32, window: Option<Span>) -> Self {
        self.header.model = LoadModel::Closed { workers };
        (self.header.process, self.header.window) = (ArrivalProcess::OnDemand, window);
        for tenant in &mut self.header.tenants {
            tenant.arrivals = None;
        }
        for arrival in &mut self.arrivals {
            arrival.at = Span::ZERO;
        }
        self
    }

    /// The same arrivals as turns of conversations, in the order of the arrivals.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if there is not one turn for each arrival, if the turns of a conversation are not in
    /// order and whole from 0 on, or if they differ in tenant or [`Arrival::at`].
    pub fn with_turns(self, users: NonZeroU32, history: bool, turns: Vec<Turn>) -> Result<Self, PlanError> {
        let mut plan = self.with_each("turns", turns, |detail, turn| detail.turn = Some(turn))?;
        plan.header.model = LoadModel::Sessions { users, history };
        plan.checked()
    }

    /// The same plan with the chunks of each arrival's prompt, in the order of the arrivals: hashes of
    /// [`Prompt::CHUNK_TOKENS`](crate::engine::Prompt::CHUNK_TOKENS) tokens each, and all before them. None for a prompt that shares what
    /// its number says.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if there is not one list for each arrival, or one is longer than its prompt.
    pub fn with_blocks(self, blocks: Vec<Arc<[u64]>>) -> Result<Self, PlanError> {
        self.with_each("lists of blocks", blocks, |detail, blocks| detail.blocks = blocks)?.checked()
    }

    /// The same plan with the leading tokens that prompts share, in the order of the arrivals.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if there is not one for each arrival, or one is longer than its prompt.
    pub fn with_prefixes(self, prefixes: Vec<Option<Prefix>>) -> Result<Self, PlanError> {
        self.with_each("prefixes", prefixes, |detail, prefix| detail.prefix = prefix)?.checked()
    }

    /// The same plan with texts of a dataset as prompts, in the order of the arrivals.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if there is not one for each arrival, or the dataset lacks one.
    pub fn with_texts(self, dataset: Arc<Dataset>, texts: Vec<Option<TextRef>>) -> Result<Self, PlanError> {
        let mut plan = self.with_each("texts", texts, |detail, text| detail.text = text)?;
        plan.header.dataset = Some(dataset.info().clone());
        plan.checked()?.with_dataset(dataset)
    }

    /// The same plan with the texts that it refers to.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if it is another dataset than the header names, or lacks a text.
    pub fn with_dataset(mut self, dataset: Arc<Dataset>) -> Result<Self, PlanError> {
        let Some(named) = &self.header.dataset else {
            return Err(PlanError::Spec("the plan refers to no dataset".into()));
        };
        if named.sha256 != dataset.info().sha256 {
            let (here, there) = (&dataset.info().sha256, &named.sha256);
            return Err(PlanError::Spec(format!("its SHA-256 is {here}; the plan was made from one of {there}")));
        }
        let lacks = |a: &&Arrival| self.text_ref(a).is_some_and(|text| dataset.text(text).is_none());
        if let Some(arrival) = self.arrivals.iter().find(lacks) {
            return Err(PlanError::Spec(format!("arrival {} refers to a text that it lacks", arrival.index)));
        }
        self.dataset = Some(dataset);
        Ok(self)
    }

    /// The same plan with longer prompts.
    pub(in crate::work) fn lengthened(mut self, by: impl Fn(&Arrival) -> u32) -> Self {
        for arrival in &mut self.arrivals {
            arrival.input = arrival.input.saturating_add(by(arrival));
        }
        self
    }

    /// The plan of the arrivals that have a value, each changed by it; their numbers are set anew.
    pub(in crate::work) fn keeping<T: Copy>(
        mut self,
        values: &[Option<T>],
        mut change: impl FnMut(Arrival, T) -> Arrival,
    ) -> Self {
        let kept = |i: usize| values.get(i).copied().flatten();
        let details = std::mem::take(&mut self.details).into_iter().enumerate();
        self.details = details.filter(|(i, _)| kept(*i).is_some()).map(|(_, detail)| detail).collect();
        let arrivals = std::mem::take(&mut self.arrivals).into_iter().enumerate();
        let arrivals = arrivals.filter_map(|(i, arrival)| Some(change(arrival, kept(i)?)));
        self.arrivals = (0u32..).zip(arrivals).map(|(index, arrival)| Arrival { index, ..arrival }).collect();
        self.header.count = self.arrivals.len() as u32;
        self
    }

    fn with_each<T>(mut self, what: &str, values: Vec<T>, set: impl Fn(&mut Detail, T)) -> Result<Self, PlanError> {
        if values.len() != self.arrivals.len() {
            return Err(PlanError::Spec(format!("{} {what} for {} arrivals", values.len(), self.arrivals.len())));
        }
        self.details.resize(self.arrivals.len(), Detail::default());
        for (detail, value) in self.details.iter_mut().zip(values) {
            set(detail, value);
        }
        Ok(self)
    }

    fn checked(mut self) -> Result<Self, PlanError> {
        if self.details.iter().all(|d| *d == Detail::default()) {
            self.details = Vec::new();
        }
        match self.problem() {
            Some((index, problem)) => Err(PlanError::Spec(format!("arrival {index}: {problem}"))),
            None => Ok(self),
        }
    }
}
