//! Attention.

use crate::cpu::attention::{Pass, ProbeWeights, Target};
use crate::cpu::rotary::Angles;
use crate::cpu::shared::Shared;
use crate::cpu::{attention as cpu_attention, pattern};
use crate::cuda::ops;
use crate::device::Device;
use crate::geometry::Span;
use crate::meta;
use crate::operands::Attended;
use crate::tensor::Tensor;

/// Attention; `log_sums` are written when backward will follow. With a probe, returns for each span
/// and key head the attention that counts.
pub(crate) fn attention(
    device: &Device,
    given: &Attended<'_>,
    (out, log_sums): (&mut Tensor, Option<&mut Tensor>),
    probe: Option<ProbeWeights<'_>>,
) -> Vec<f64> {
    match device {
        Device::Cpu(pool) => given.on_cpu(|inputs| {
            let into = (out.write(), log_sums.map(Tensor::write));
            cpu_attention::forward(pool, (given.geometry, given.spans), inputs, into, probe)
        }),
        Device::Meta(counter) => {
            out.own();
            log_sums.into_iter().for_each(Tensor::own);
            meta::attention(counter, given, Pass::Forward);
            vec![0.0; given.spans.len() * given.geometry.kv_heads]
        }
        Device::Cuda(cuda) => {
            let Some(probe) = probe else {
                ops::attention(cuda, given, (out, log_sums));
                return Vec::new();
            };
            let mut own = None;
            let log_sums = log_sums.unwrap_or_else(|| {
                own.insert(Tensor::scratch(device, given.queries.rows(), given.geometry.heads))
            });
            ops::attention(cuda, given, (out, Some(log_sums)));
            ops::probe(cuda, given, log_sums, probe)
        }
    }
}

/// Whether the device takes one new token for each span in one pass; see [`attention_decoding`].
pub(crate) fn decodes_at_once(device: &Device, given: &Attended<'_>) -> bool {
    match device {
        Device::Cpu(_) | Device::Meta(_) => false,
        Device::Cuda(cuda) => ops::decodes(cuda, given),
    }
}

/// Attention of one new token for each span over its cache, which has a last row for the token's key and value. These
/// are side by side with the queries, and are turned here.
pub(crate) fn attention_decoding(
    given: &Attended<'_>,
    turned: Option<(&[u32], &Angles)>,
    out: &mut Tensor,
) {
    match &out.device() {
        Device::Cuda(cuda) => ops::attention_decoding(cuda, given, turned, out),
        Device::Cpu(_) | Device::Meta(_) => unreachable!("only a GPU decodes at once"),
    }
}

/// Gradients of attention, from its result `out` where the device reads that. Where `dq` is absent, the gradients of the queries go into the first
/// columns of `dkv`.
pub(crate) fn attention_backward(
    device: &Device,
    given: &Attended<'_>,
    (out, log_sums, dout): (Option<&Tensor>, &Tensor, &Tensor),
    (dq, dkv): (Option<&mut Tensor>, &mut Tensor),
) {
    let value_column = given.key_column + given.geometry.kv_heads * given.geometry.width;
    match device {
        Device::Cpu(pool) => given.on_cpu(|inputs| {
            let stride = dkv.cols();
            let shared = Shared::new(dkv.write());
            let queries = match dq {
                Some(dq) => {
                    let stride = dq.cols();
                    Target { data: Shared::new(dq.write()), stride, column: 0 }
                }
                None => Target { data: shared, stride, column: 0 },
            };
            let target = |column| Target { data: shared, stride, column };
            let into = [queries, target(given.key_column), target(value_column)];
            let spans = (given.geometry, given.spans);
            cpu_attention::backward(pool, spans, inputs, (&log_sums.read(), &dout.read()), into);
        }),
        Device::Meta(counter) => {
            dq.into_iter().chain([dkv]).for_each(Tensor::own);
            meta::attention(counter, given, Pass::Backward);
        }
        Device::Cuda(cuda) => {
            let out = out.expect("a GPU's attention keeps its result");
            ops::attention_backward(cuda, given, (out, log_sums, dout), (dq, dkv));
        }
    }
}

/// All attention weights, by span, head, query and key.
pub(crate) fn attention_pattern(device: &Device, given: &Attended<'_>) -> Vec<f32> {
    match device {
        Device::Cpu(_) => {
            given.on_cpu(|inputs| pattern::pattern(given.geometry, given.spans, inputs))
        }
        Device::Meta(_) => {
            let pairs = |span: &Span| span.queries.len() * span.keys.len();
            let all: usize = given.spans.iter().map(pairs).sum();
            vec![0.0; given.geometry.heads * all]
        }
        Device::Cuda(_) => given.on_host(|given| attention_pattern(&given.queries.device(), given)),
    }
}
