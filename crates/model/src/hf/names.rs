//! Parameter ids to Hugging Face tensor names, and back. Each family has one table, read in both
//! directions, so that what is saved under a name is loaded from it.
//!
//! Reading is more generous than writing: the `bert.` or `model.` prefix may be there or not, and
//! names that older libraries wrote are understood.

mod table;

use fedra_plan::{Layer, ParamId, Part, Role};

use self::table::{Place, Row};

/// What PEFT puts before the names of an adapter file.
const PEFT: &str = "base_model.model.";

/// The class that other libraries load a saved folder with; it decides the prefix and the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the library's documentation")]
pub enum Architecture {
    BertModel,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertForMaskedLM,
    LlamaModel,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
}

impl Architecture {
    const ALL: [Self; 8] = [
        Self::BertModel,
        Self::BertForSequenceClassification,
        Self::BertForTokenClassification,
        Self::BertForMaskedLM,
        Self::LlamaModel,
        Self::LlamaForCausalLM,
        Self::LlamaForSequenceClassification,
        Self::LlamaForTokenClassification,
    ];

    /// The architecture with this class name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.class_name() == name)
    }

    /// The class name, as in `architectures` of `config.json`.
    pub fn class_name(self) -> String {
        format!("{self:?}")
    }

    /// The family it belongs to.
    pub const fn family(self) -> Family {
        match self {
            Self::BertModel
            | Self::BertForSequenceClassification
            | Self::BertForTokenClassification
            | Self::BertForMaskedLM => Family::Bert,
            Self::LlamaModel
            | Self::LlamaForCausalLM
            | Self::LlamaForSequenceClassification
            | Self::LlamaForTokenClassification => Family::Llama,
        }
    }

    /// What the class's head answers with, if it is a classification head.
    pub const fn answers(self) -> Option<Answers> {
        match self {
            Self::BertForSequenceClassification | Self::LlamaForSequenceClassification => {
                Some(Answers::Sequences)
            }
            Self::BertForTokenClassification | Self::LlamaForTokenClassification => {
                Some(Answers::Tokens)
            }
            Self::BertModel | Self::BertForMaskedLM | Self::LlamaModel | Self::LlamaForCausalLM => {
                None
            }
        }
    }

    /// What stands before the names of the backbone.
    const fn prefix(self) -> &'static str {
        let is_bare = matches!(self, Self::BertModel | Self::LlamaModel);
        if is_bare { "" } else { self.family().backbone_prefix() }
    }

    /// Whether the class has this parameter in its head.
    fn has_head(self, role: Role, part: Part) -> bool {
        match self {
            Self::BertModel => matches!(role, Role::Pooler),
            Self::BertForSequenceClassification => matches!(role, Role::Pooler | Role::Classifier),
            Self::BertForTokenClassification => matches!(role, Role::Classifier),
            Self::BertForMaskedLM => {
                matches!(role, Role::Transform | Role::TransformNorm | Role::Vocabulary)
            }
            Self::LlamaModel => matches!(role, Role::FinalNorm),
            Self::LlamaForCausalLM => matches!(role, Role::FinalNorm | Role::Vocabulary),
            // The library gives this one head no bias, and the other one.
            Self::LlamaForSequenceClassification => {
                matches!(role, Role::FinalNorm | Role::Classifier) && part != Part::Bias
            }
            Self::LlamaForTokenClassification => matches!(role, Role::FinalNorm | Role::Classifier),
        }
    }

    /// The name under which this class saves a parameter; none if it has no such parameter. LoRA
    /// parts get the name that PEFT gives them in an adapter file.
    ///
    /// ```
    /// use fedra_model::hf::names::Architecture;
    /// let name = Architecture::LlamaForCausalLM.tensor_name("block.3.query.weight".parse()?);
    /// assert_eq!(name.as_deref(), Some("model.layers.3.self_attn.q_proj.weight"));
    /// # Ok::<(), fedra_plan::PlanError>(())
    /// ```
    pub fn tensor_name(self, id: ParamId) -> Option<String> {
        let ParamId { site, role, part } = id;
        if site == Layer::Head && !self.has_head(role, part) {
            return None;
        }
        let row = self.family().rows().iter().find(|row| row.is(id))?;
        let adapter = if matches!(part, Part::LoraA | Part::LoraB) { PEFT } else { "" };
        let backbone = if row.place == Place::Head { "" } else { self.prefix() };
        let block = match site {
            Layer::Block(number) => format!("{}{number}.", self.family().block_prefix()),
            Layer::Embedding | Layer::Head => String::new(),
        };
        Some(format!("{adapter}{backbone}{block}{}{}", row.module, suffix(part)))
    }
}

/// What a classification head classifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Whole sequences.
    Sequences,
    /// Each token.
    Tokens,
}

impl Answers {
    /// The kind of task, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequences => "sequence classification",
            Self::Tokens => "token classification",
        }
    }
}

/// A family of models that share tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// BERT encoders.
    Bert,
    /// LLaMA decoders.
    Llama,
}

impl Family {
    /// What a tensor of this name is to a model of this family.
    ///
    /// ```
    /// use fedra_model::hf::names::{Family, Meaning};
    /// let id = "block.0.attention_norm.bias".parse()?;
    /// let old = "bert.encoder.layer.0.attention.output.LayerNorm.beta";
    /// assert_eq!(Family::Bert.meaning(old), Meaning::Parameter(id));
    /// # Ok::<(), fedra_plan::PlanError>(())
    /// ```
    pub fn meaning(self, name: &str) -> Meaning {
        let name = name.strip_prefix(PEFT).unwrap_or(name);
        let bare = name.strip_prefix(self.backbone_prefix()).unwrap_or(name);
        if let Some(id) = self.parameter(name, bare) {
            return Meaning::Parameter(id);
        }
        match (self, bare) {
            (Self::Bert, "cls.predictions.decoder.weight") => {
                Meaning::Copy(ParamId::new(Layer::Embedding, Role::Token, Part::Weight))
            }
            (Self::Bert, "cls.predictions.decoder.bias") => {
                Meaning::Copy(ParamId::new(Layer::Head, Role::Vocabulary, Part::Bias))
            }
            (Self::Bert, "embeddings.position_ids" | "embeddings.token_type_ids") => {
                Meaning::Buffer
            }
            (Self::Llama, other) if other.ends_with("rotary_emb.inv_freq") => Meaning::Buffer,
            (_, other) if is_other_head(other) => Meaning::OtherHead,
            (Self::Bert | Self::Llama, _) => Meaning::Unknown,
        }
    }

    /// The parameter called `name`, or `bare` once the prefix of the backbone is taken off.
    fn parameter(self, name: &str, bare: &str) -> Option<ParamId> {
        let (module, part) = split_part(bare)?;
        let (site, module) = match module.strip_prefix(self.block_prefix()) {
            Some(rest) => {
                let (digits, module) = rest.split_once('.')?;
                (Some(Layer::Block(block_number(digits)?)), module)
            }
            None => (None, module),
        };
        let row = self
            .rows()
            .iter()
            .find(|row| row.module == module && (row.place == Place::Block) == site.is_some())?;
        let has_prefix = name.len() != bare.len();
        let old_norm = matches!(bare.rsplit_once('.'), Some((_, "gamma" | "beta")));
        if (has_prefix && row.place == Place::Head) || (old_norm && !row.is_norm()) {
            return None;
        }
        let site = site.unwrap_or(match row.place {
            Place::Embedding => Layer::Embedding,
            Place::Block | Place::BackboneHead | Place::Head => Layer::Head,
        });
        let id = ParamId::new(site, row.role, part);
        row.is(id).then_some(id)
    }

    const fn rows(self) -> &'static [Row] {
        match self {
            Self::Bert => table::BERT,
            Self::Llama => table::LLAMA,
        }
    }

    const fn backbone_prefix(self) -> &'static str {
        match self {
            Self::Bert => "bert.",
            Self::Llama => "model.",
        }
    }

    const fn block_prefix(self) -> &'static str {
        match self {
            Self::Bert => "encoder.layer.",
            Self::Llama => "layers.",
        }
    }
}

/// What a tensor's name says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A parameter of ours.
    Parameter(ParamId),
    /// A second name of a parameter, written by libraries that do not drop shared tensors.
    Copy(ParamId),
    /// A constant that is computed, not learnt.
    Buffer,
    /// Part of a head that this crate does not have.
    OtherHead,
    /// None of these.
    Unknown,
}

/// Question answering, and the sentence order of BERT's pre-training.
fn is_other_head(name: &str) -> bool {
    ["qa_outputs.", "cls.seq_relationship."].iter().any(|head| name.starts_with(head))
}

const fn suffix(part: Part) -> &'static str {
    match part {
        Part::Weight => ".weight",
        Part::Bias => ".bias",
        Part::LoraA => ".lora_A.weight",
        Part::LoraB => ".lora_B.weight",
    }
}

/// Splits the part off a name; longer suffixes first, because all of LoRA's end in `.weight`.
fn split_part(name: &str) -> Option<(&str, Part)> {
    const SUFFIXES: [(&str, Part); 6] = [
        (suffix(Part::LoraA), Part::LoraA),
        (suffix(Part::LoraB), Part::LoraB),
        (suffix(Part::Weight), Part::Weight),
        (suffix(Part::Bias), Part::Bias),
        (".gamma", Part::Weight),
        (".beta", Part::Bias),
    ];
    SUFFIXES.iter().find_map(|(suffix, part)| Some((name.strip_suffix(suffix)?, *part)))
}

/// A block's number in its one canonical spelling, so that two names cannot mean one tensor.
fn block_number(digits: &str) -> Option<u16> {
    let number: u16 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(architecture: Architecture, id: &str, expected: Option<&str>) {
        let id: ParamId = id.parse().unwrap();
        let name = architecture.tensor_name(id);
        assert_eq!(name.as_deref(), expected);
        if let Some(name) = name {
            assert_eq!(architecture.family().meaning(&name), Meaning::Parameter(id));
        }
    }

    #[test]
    fn names_are_those_of_the_library() {
        use Architecture as A;
        let query = "block.2.query.weight";
        check(A::BertModel, query, Some("encoder.layer.2.attention.self.query.weight"));
        check(A::BertForMaskedLM, query, Some("bert.encoder.layer.2.attention.self.query.weight"));
        check(A::BertForMaskedLM, "head.vocabulary.bias", Some("cls.predictions.bias"));
        check(A::BertForMaskedLM, "head.vocabulary.weight", None);
        check(A::BertForMaskedLM, "head.pooler.weight", None);
        let pooler = Some("bert.pooler.dense.bias");
        check(A::BertForSequenceClassification, "head.pooler.bias", pooler);
        check(A::BertForTokenClassification, "head.classifier.bias", Some("classifier.bias"));
        check(A::LlamaModel, query, Some("layers.2.self_attn.q_proj.weight"));
        check(A::LlamaModel, "head.final_norm.weight", Some("norm.weight"));
        check(A::LlamaForCausalLM, "head.final_norm.weight", Some("model.norm.weight"));
        check(A::LlamaForCausalLM, "head.vocabulary.weight", Some("lm_head.weight"));
        check(A::LlamaForCausalLM, "block.2.query.bias", None);
        check(A::LlamaForSequenceClassification, "head.classifier.weight", Some("score.weight"));
        check(A::LlamaForSequenceClassification, "head.classifier.bias", None);
        check(A::LlamaForTokenClassification, "head.classifier.bias", Some("score.bias"));
        let adapter = "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight";
        check(A::LlamaForCausalLM, "block.0.value.lora_a", Some(adapter));
        check(A::LlamaForCausalLM, "block.0.mlp_norm.lora_a", None);
        check(A::LlamaForCausalLM, "embedding.token.lora_a", None);
    }

    #[test]
    fn every_name_of_every_class_reads_back_as_its_id() {
        for architecture in Architecture::ALL {
            for row in architecture.family().rows() {
                for part in [Part::Weight, Part::Bias, Part::LoraA, Part::LoraB] {
                    let site = match row.place {
                        Place::Embedding => Layer::Embedding,
                        Place::Block => Layer::Block(17),
                        Place::BackboneHead | Place::Head => Layer::Head,
                    };
                    let id = ParamId::new(site, row.role, part);
                    let Some(name) = architecture.tensor_name(id) else { continue };
                    assert_eq!(architecture.family().meaning(&name), Meaning::Parameter(id));
                }
            }
        }
    }

    #[test]
    fn older_names_are_understood_and_others_are_not() {
        let norm =
            |part| Meaning::Parameter(ParamId::new(Layer::Embedding, Role::EmbeddingNorm, part));
        let meaning = |name| Family::Bert.meaning(name);
        assert_eq!(meaning("bert.embeddings.LayerNorm.gamma"), norm(Part::Weight));
        assert_eq!(meaning("embeddings.LayerNorm.beta"), norm(Part::Bias));
        assert_eq!(meaning("embeddings.position_ids"), Meaning::Buffer);
        assert_eq!(meaning("cls.seq_relationship.weight"), Meaning::OtherHead);
        for unknown in [
            "",
            "weight",
            "embeddings.word_embeddings.gamma",
            "bert.classifier.weight",
            "bert.bert.pooler.dense.weight",
            "encoder.layer.00.attention.self.query.weight",
            "encoder.layer.+1.attention.self.query.weight",
            "encoder.layer.65536.attention.self.query.weight",
            "encoder.layer.0",
            "attention.self.query.weight",
        ] {
            assert_eq!(meaning(unknown), Meaning::Unknown, "{unknown}");
        }
        let rotary = "model.layers.0.self_attn.rotary_emb.inv_freq";
        assert_eq!(Family::Llama.meaning(rotary), Meaning::Buffer);
        let bias = "model.layers.0.self_attn.q_proj.bias";
        assert_eq!(Family::Llama.meaning(bias), Meaning::Unknown);
    }
}
