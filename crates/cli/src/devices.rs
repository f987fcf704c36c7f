//! `fedra devices`: what there is to compute on.

use anyhow::Result;
use clap::Args;
use fedra::text::grid::Grid;
use fedra_compute::gpus;
use fedra_plan::ByteCount;
use serde_json::json;

use crate::console;

/// List the devices that can compute
#[derive(Args)]
pub struct Devices {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Devices {
    /// Looks and prints.
    pub fn run(&self) -> Result<()> {
        let gpus = gpus()?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.json {
            let gpus: Vec<_> = gpus
                .iter()
                .map(|gpu| {
                    json!({
                        "device": format!("cuda:{}", gpu.number), "name": gpu.name,
                        "bytes": gpu.memory, "free_bytes": gpu.free,
                        "capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                        "multiprocessors": gpu.multiprocessors,
                        "driver": format!("{}.{}", gpu.driver.0, gpu.driver.1),
                    })
                })
                .collect();
            console::json(json!({ "cpu": { "threads": threads }, "gpus": gpus }));
            return Ok(());
        }
        let mut grid = Grid::new(["device", "name", ">memory", ">free", ">capability", ">CUDA"]);
        let none = String::new;
        grid.row(["cpu".to_owned(), format!("{threads} threads"), none(), none(), none(), none()]);
        for gpu in &gpus {
            grid.row([
                format!("cuda:{}", gpu.number),
                gpu.name.clone(),
                ByteCount(gpu.memory).to_string(),
                ByteCount(gpu.free).to_string(),
                format!("{}.{}", gpu.capability.0, gpu.capability.1),
                format!("{}.{}", gpu.driver.0, gpu.driver.1),
            ]);
        }
        console::data(grid);
        if gpus.is_empty() {
            console::say("note: there is no GPU here, or no driver of NVIDIA's (libcuda.so.1)");
        }
        Ok(())
    }
}
