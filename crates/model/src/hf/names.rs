//! Parameter ids to Hugging Face tensor names, and back. Each family has one table, read in both
//! directions, so that what is saved under a name is loaded from it.
//!
//! Reading is more generous than writing: the prefix of the backbone may be there or not, and
//! names that older libraries wrote are understood. A tensor may hold several parameters, one after the other in
//! its rows.

use fedra_plan::{Layer, ParamId, Part, Role, Shape};

use crate::config::Config;
use crate::families;
use crate::family::{ClassKind, Copied, Family, Module, Place, is_norm};

/// What PEFT puts before the names of an adapter file.
const PEFT: &str = "base_model.model.";

/// The class that other libraries load a saved folder with; it decides the prefix and the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Whose names it has.
    pub family: &'static Family,
    /// What it has on its backbone.
    pub kind: ClassKind,
}

impl Architecture {
    /// Every class of every family.
    pub fn all() -> impl Iterator<Item = Self> {
        let has = |family: &Family, kind| match kind {
            ClassKind::Base | ClassKind::Sequences => true,
            ClassKind::Tokens | ClassKind::Language => !family.reads_images(),
        };
        let kinds = move |family: &'static Family| {
            let kinds = ClassKind::ALL.into_iter().filter(move |kind| has(family, *kind));
            kinds.map(move |kind| Self { family, kind })
        };
        families::all().flat_map(kinds)
    }

    /// The architecture with this class name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|architecture| architecture.class_name() == name)
    }

    /// The architecture of a family with this class name, also where "Text" is missing in it: folders of Gemma 3
    /// have been written so.
    fn parse_of(family: &'static Family, name: &str) -> Option<Self> {
        let text = family.class.strip_suffix("Text");
        let own =
            text.and_then(|short| Some(format!("{}{}", family.class, name.strip_prefix(short)?)));
        Self::parse(name).or_else(|| Self::parse(&own?))
    }

    /// The class name, as in `architectures` of `config.json`.
    pub fn class_name(self) -> String {
        if let (ClassKind::Language, Some(name)) = (self.kind, self.family.language_class) {
            return name.to_owned();
        }
        let end = match self.kind {
            ClassKind::Base => "Model",
            ClassKind::Sequences if self.family.reads_images() => "ForImageClassification",
            ClassKind::Sequences => "ForSequenceClassification",
            ClassKind::Tokens => "ForTokenClassification",
            ClassKind::Language => self.family.language,
        };
        format!("{}{end}", self.family.class)
    }

    /// What the class's head answers with, if it is a classification head.
    pub const fn answers(self) -> Option<Answers> {
        match self.kind {
            ClassKind::Sequences => Some(Answers::Sequences),
            ClassKind::Tokens => Some(Answers::Tokens),
            ClassKind::Base | ClassKind::Language => None,
        }
    }

    /// Whether the class has this role in its head.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other roles are inside the backbone")]
    fn has_head(self, role: Role) -> bool {
        use ClassKind::{Base, Language, Sequences, Tokens};
        let kinds: &[ClassKind] = match role {
            Role::FinalNorm => &[Base, Sequences, Tokens, Language],
            Role::Pooler => &[Base, Sequences],
            Role::Classifier => &[Sequences, Tokens],
            Role::Transform | Role::TransformNorm => &[Sequences, Tokens, Language],
            Role::Vocabulary => &[Language],
            _ => &[],
        };
        kinds.contains(&self.kind)
    }

    /// The name under which this class saves a parameter; none if it has no such parameter. LoRA
    /// parts get the name that PEFT gives them in an adapter file.
    ///
    /// ```
    /// use fedra_model::hf::names::Architecture;
    /// let class = Architecture::parse("LlamaForCausalLM").unwrap();
    /// let name = class.tensor_name("block.3.query.weight".parse()?);
    /// assert_eq!(name.as_deref(), Some("model.layers.3.self_attn.q_proj.weight"));
    /// # Ok::<(), fedra_plan::PlanError>(())
    /// ```
    pub fn tensor_name(self, id: ParamId) -> Option<String> {
        let ParamId { layer, role, part } = id;
        let Module { place, name, roles, alone, .. } = self.module(id)?;
        let is_adapter = part.is_adapter();
        if is_adapter && (!is_adapted(*place, role) || roles.len() > 1) {
            return None;
        }
        if alone.is_some() && part != Part::Weight {
            return None;
        }
        let adapter = if is_adapter { PEFT } else { "" };
        let backbone = match (place, self.kind) {
            (Place::Head, _) | (_, ClassKind::Base) => "",
            (Place::Embedding | Place::Block | Place::BackboneHead, _) => self.family.prefix,
        };
        let block = match layer {
            Layer::Block(number) => format!("{}{number}.", self.family.blocks),
            Layer::Embedding | Layer::Head => String::new(),
        };
        let end = if alone.is_some() { "" } else { suffix(part) };
        Some(format!("{adapter}{backbone}{block}{name}{end}"))
    }

    /// The same class under the names that adapters are for.
    pub(crate) fn of_modules(self) -> Self {
        Self { family: self.family.as_modules.unwrap_or(self.family), ..self }
    }

    /// The dimensions of a tensor whose numbers have this shape in a model of this configuration.
    pub(crate) fn stored_dims(self, id: ParamId, shape: &Shape, config: &Config) -> Vec<usize> {
        let mut dims = shape.dims().to_vec();
        if let (Role::Patch, Part::Weight, Some(image)) = (id.role, id.part, config.image) {
            return vec![dims[0], image.channels, image.patch_height, image.patch_width];
        }
        while self.module(id).and_then(|module| module.alone).is_some_and(|it| dims.len() < it) {
            dims.insert(0, 1);
        }
        dims
    }

    /// The parameters that lie in the same tensor as this one, in the order of their rows.
    pub(crate) fn stored_with(self, id: ParamId) -> Vec<ParamId> {
        let roles = self.module(id).map_or(&[][..], |module| module.roles);
        roles.iter().map(|role| ParamId { role: *role, ..id }).collect()
    }

    /// Whether the tensor of a parameter is stored with inputs as rows.
    pub(crate) fn is_transposed(self, id: ParamId) -> bool {
        id.part == Part::Weight && self.module(id).is_some_and(|module| module.transposed)
    }

    /// Whether any tensor of the class is.
    pub(crate) fn has_transposed(self) -> bool {
        self.family.modules.iter().copied().flatten().any(|module| module.transposed)
    }

    fn module(self, id: ParamId) -> Option<&'static Module> {
        if id.layer == Layer::Head && !self.has_head(id.role) {
            return None;
        }
        // An encoder's is the token embedding, whatever name a copy of it has.
        let is_vocabulary = id.role == Role::Vocabulary && id.part == Part::Weight;
        if is_vocabulary && self.family.copies.iter().any(|(_, of)| *of == Copied::Token) {
            return None;
        }
        let is_here = |module: &&Module| {
            module.roles.contains(&id.role)
                && module.place.layer(id.layer) == id.layer
                && module.only.is_none_or(|kind| kind == self.kind)
        };
        self.family.modules.iter().copied().flatten().find(is_here)
    }
}

impl Config {
    /// The class that saved the folder, when the file names one we know.
    pub fn architecture(&self) -> Option<Architecture> {
        let name = self.original.get("architectures")?.get(0)?.as_str()?;
        let architecture = Architecture::parse_of(self.family, name)?;
        // Two families may share the names of their classes: those of a DINOv2 with another MLP.
        let is_ours = architecture.family == self.family;
        is_ours.then_some(Architecture { family: self.family, ..architecture })
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

impl Place {
    /// The layer of what is in this place; a block is known by its number.
    const fn layer(self, given: Layer) -> Layer {
        match (self, given) {
            (Self::Embedding, _) => Layer::Embedding,
            (Self::Block, Layer::Block(number)) => Layer::Block(number),
            (Self::Block, Layer::Embedding | Layer::Head) => Layer::Block(0),
            (Self::BackboneHead | Self::Head, _) => Layer::Head,
        }
    }
}

impl Family {
    /// What a tensor of this name is to a model of this family.
    ///
    /// ```
    /// use fedra_model::hf::names::{Architecture, Meaning};
    /// let id = "block.0.attention_norm.bias".parse()?;
    /// let old = "bert.encoder.layer.0.attention.output.LayerNorm.beta";
    /// let bert = Architecture::parse("BertModel").unwrap().family;
    /// assert_eq!(bert.meaning(old), Meaning::Parameters(vec![id]));
    /// # Ok::<(), fedra_plan::PlanError>(())
    /// ```
    pub fn meaning(&self, name: &str) -> Meaning {
        let name = name.strip_prefix(PEFT).unwrap_or(name);
        let bare = name.strip_prefix(self.prefix).unwrap_or(name);
        if let Some(ids) = self.parameters(name, bare) {
            return Meaning::Parameters(ids);
        }
        if let Some((_, of)) = self.copies.iter().find(|(copy, _)| *copy == bare) {
            return Meaning::Copy(match of {
                Copied::Token => ParamId::new(Layer::Embedding, Role::Token, Part::Weight),
                Copied::VocabularyBias => ParamId::new(Layer::Head, Role::Vocabulary, Part::Bias),
            });
        }
        if self.buffers.iter().any(|end| bare.ends_with(end)) {
            return Meaning::Buffer;
        }
        if self.other_heads.iter().any(|begin| bare.starts_with(begin)) {
            return Meaning::OtherHead;
        }
        if self.unread.contains(&bare) {
            return Meaning::Unread;
        }
        Meaning::Unknown
    }

    /// The parameters called `name`, or `bare` once the prefix of the backbone is taken off.
    fn parameters(&self, name: &str, bare: &str) -> Option<Vec<ParamId>> {
        let (number, path) = match bare.strip_prefix(self.blocks) {
            Some(rest) => {
                let (digits, path) = rest.split_once('.')?;
                (Some(Layer::Block(block_number(digits)?)), path)
            }
            None => (None, bare),
        };
        let named = |path: &str, alone: bool| {
            let is_meant = |module: &&Module| {
                module.name == path
                    && module.alone.is_some() == alone
                    && (module.place == Place::Block) == number.is_some()
            };
            self.modules.iter().copied().flatten().find(is_meant)
        };
        let (module, part) = if let Some(module) = named(path, true) {
            (module, Part::Weight)
        } else {
            let (path, part) = split_part(path)?;
            (named(path, false)?, part)
        };
        let has_prefix = name.len() != bare.len();
        let is_old = matches!(bare.rsplit_once('.'), Some((_, "gamma" | "beta")));
        let is_norm = module.roles.iter().all(|role| is_norm(*role));
        if (has_prefix && module.place == Place::Head) || (is_old && !is_norm) {
            return None;
        }
        let takes_adapter = module.roles.iter().all(|role| is_adapted(module.place, *role));
        if part.is_adapter() && !takes_adapter {
            return None;
        }
        let layer = module.place.layer(number.unwrap_or(Layer::Head));
        Some(module.roles.iter().map(|role| ParamId::new(layer, *role, part)).collect())
    }
}

/// Whether a module may have an adapter: a projection inside a block, or an output vocabulary.
fn is_adapted(place: Place, role: Role) -> bool {
    match place {
        Place::Block => !is_norm(role),
        Place::Head => role == Role::Vocabulary,
        Place::Embedding | Place::BackboneHead => false,
    }
}

/// What a tensor's name says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A parameter of ours, or several that lie one after the other in its rows.
    Parameters(Vec<ParamId>),
    /// A second name of a parameter, written by libraries that do not drop shared tensors.
    Copy(ParamId),
    /// A constant that is computed, not learnt.
    Buffer,
    /// Part of a head that this crate does not have.
    OtherHead,
    /// What every class of the library has and no head here reads.
    Unread,
    /// None of these.
    Unknown,
}

const fn suffix(part: Part) -> &'static str {
    match part {
        Part::Weight => ".weight",
        Part::Bias => ".bias",
        Part::LoraA => ".lora_A.weight",
        Part::LoraB => ".lora_B.weight",
        Part::Magnitude => ".lora_magnitude_vector",
    }
}

/// Splits the part off a name; longer suffixes first, because all of LoRA's end in `.weight`.
fn split_part(name: &str) -> Option<(&str, Part)> {
    const SUFFIXES: [(&str, Part); 7] = [
        (suffix(Part::LoraA), Part::LoraA),
        (suffix(Part::LoraB), Part::LoraB),
        (suffix(Part::Magnitude), Part::Magnitude),
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
    fn check(class: &str, id: &str, expected: Option<&str>) {
        let id: ParamId = id.parse().unwrap();
        let architecture = Architecture::parse(class).unwrap();
        let name = architecture.tensor_name(id);
        assert_eq!(name.as_deref(), expected);
        if let Some(name) = name {
            assert_eq!(architecture.family.meaning(&name), Meaning::Parameters(vec![id]));
        }
    }

    #[test]
    fn names_are_those_of_the_library() {
        let query = "block.2.query.weight";
        check("BertModel", query, Some("encoder.layer.2.attention.self.query.weight"));
        check("BertForMaskedLM", query, Some("bert.encoder.layer.2.attention.self.query.weight"));
        check("BertForMaskedLM", "head.vocabulary.bias", Some("cls.predictions.bias"));
        check("BertForMaskedLM", "head.vocabulary.weight", None);
        check("BertForMaskedLM", "head.pooler.weight", None);
        let pooler = Some("bert.pooler.dense.bias");
        check("BertForSequenceClassification", "head.pooler.bias", pooler);
        check("BertForTokenClassification", "head.classifier.bias", Some("classifier.bias"));
        check("LlamaModel", query, Some("layers.2.self_attn.q_proj.weight"));
        check("LlamaModel", "head.final_norm.weight", Some("norm.weight"));
        check("LlamaForCausalLM", "head.final_norm.weight", Some("model.norm.weight"));
        check("LlamaForCausalLM", "head.vocabulary.weight", Some("lm_head.weight"));
        check("LlamaForSequenceClassification", "head.classifier.weight", Some("score.weight"));
        check("LlamaForTokenClassification", "head.classifier.bias", Some("score.bias"));
        let adapter = "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight";
        check("LlamaForCausalLM", "block.0.value.lora_a", Some(adapter));
        check("LlamaForCausalLM", "block.0.mlp_norm.lora_a", None);
        check("LlamaForCausalLM", "embedding.token.lora_a", None);
    }

    #[test]
    fn every_name_of_every_class_reads_back_as_its_parameters() {
        for architecture in Architecture::all() {
            for module in architecture.family.modules.iter().copied().flatten() {
                for part in Part::ALL {
                    let layer = module.place.layer(Layer::Block(17));
                    let id = ParamId::new(layer, module.roles[0], part);
                    let Some(name) = architecture.tensor_name(id) else { continue };
                    let together = architecture.stored_with(id);
                    let meaning = architecture.family.meaning(&name);
                    assert_eq!(meaning, Meaning::Parameters(together), "{name}");
                }
            }
        }
    }

    #[test]
    fn older_names_are_understood_and_others_are_not() {
        let norm = |part| {
            Meaning::Parameters(vec![ParamId::new(Layer::Embedding, Role::EmbeddingNorm, part)])
        };
        let meaning = |name| Architecture::parse("BertModel").unwrap().family.meaning(name);
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
        let llama = Architecture::parse("LlamaModel").unwrap().family;
        let rotary = "model.layers.0.self_attn.rotary_emb.inv_freq";
        assert_eq!(llama.meaning(rotary), Meaning::Buffer);
    }
}
