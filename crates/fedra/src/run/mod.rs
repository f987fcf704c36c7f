//! Running an experiment: in this process, as the server of a network, or as one of its clients; and the plan of all that.

pub mod agreement;
pub mod federate;
pub mod plan_report;
pub mod serve;
pub mod site;
pub mod start;
