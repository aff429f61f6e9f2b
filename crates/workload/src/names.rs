// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a name to the file that defines it.

use crate::Workload;
use crate::WorkloadError;
use crate::gups;
use crate::nomad;
use crate::sizes::Parameters;

pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let name = parameters.workload();
    match name {
        "gups" => gups::hot_set(parameters),
        "gups-uniform" => gups::uniform(parameters),
        _ => nomad::build(parameters),
    }
}
