"""Configs that are broken, each by one rule: (overrides, who refuses it, path, a part of what is found, of the fix)."""

SMALL = (
    "model.n_layers=2", "model.d_model=32", "model.attention.n_heads=4", "model.ffn.d_ff=48",
    "model.train_length=32", "model.deploy_length=32",
)  # fmt: skip
BASE = (*SMALL, "data=text", "data.path=DIR/text.txt", "trainer=cpu", "logger=none")
"""What each of them is changed from, which passes; DIR is the folder of the test's files."""

TWO = ["model=encoder_decoder", "objective=span_corruption", "model.encoder.n_layers=2"]
ENCODER = ["model=encoder", "objective=masked"]
LABELLED = ["data=files", "data.path=DIR/labelled.jsonl", "data.form=labelled"]
CLASSES = ["model=encoder", "objective=classification", "model/head=classifier", "model.head.n_classes=3",
           "model.tie_embeddings=false", *LABELLED]  # fmt: skip
PAIRED = ["model=encoder", "objective=contrastive", "model/head=sentence", "model.tie_embeddings=false",
          "data=files", "data.path=DIR/contrastive.jsonl", "data.form=contrastive"]  # fmt: skip
TASK = ["tokenizer=symbols"]
MOE = ["model/ffn=moe", "~model.ffn.d_ff", "model.ffn.expert.d_ff=16", "model.ffn.n_experts=4"]


def _mixer(name: str, *knobs: str) -> list[str]:
    """A model of layers that carry a state."""
    return ["model=state_space", f"model/ssm={name}", *(f"model.ssm.{knob}" for knob in knobs)]


_TYPES = [
    (["model.deploy_length=0"], "load", "model.deploy_length", "0", "model.deploy_length=1"),
    (["model.n_layers=0"], "load", "model.n_layers", "0", "model.n_layers=1"),
    (["model.tie_embeddings=3"], "load", "model.tie_embeddings", "3", "model.tie_embeddings=true"),
    (["model.kind=decodr"], "load", "model.kind", "'decodr'", "model.kind=decoder"),
    (["optimizer.betas=[0.9]"], "load", "optimizer.betas", "[0.9]", "optimizer.betas=[0.9,0.95]"),
    (["schedule.floor=2.0"], "load", "schedule.floor", "2.0", "schedule.floor=0.1"),
    (["batch.micro_batch=some"], "load", "batch.micro_batch", "'some'", "batch.micro_batch=null"),
    (["model.norm.name=rmsnormm"], "load", "model.norm.name", "'rmsnormm'", "model.norm.name=rmsnorm"),
    (["model.attention=gqa"], "load", "model.attention", "'gqa'", "model/attention=gqa"),
    (["optimizer.lrr=0.1"], "load", "optimizer.lrr", "0.1", "did you mean optimizer.lr?"),
    (["optimizer.zzzzzz=0.1"], "load", "optimizer.zzzzzz", "0.1", "leave optimizer.zzzzzz out"),
    (["model.window=8"], "load", "model.window", "8", "did you mean model.attention.window?"),
    (["model.attention.kernel=sdp"], "load", "model.attention.kernel", "'sdp'", "model.attention.kernel=sdpa"),
    (["model.attention.bias=some"], "load", "model.attention.bias", "'some'", "model.attention.bias=[q,k,v]"),
    (["model.embedding.scale=big"], "load", "model.embedding.scale", "'big'", "model.embedding.scale=sqrt_d_model"),
    (["trainer.max_steps=0"], "load", "trainer.max_steps", "0", "trainer.max_steps=1000"),
    (["seed=99999999999999999999"], "load", "seed", "99999999999999999999", "seed=4294967295"),
    (["trainer.precision=bf17-mixed"], "load", "trainer.precision", "'bf17-mixed'", "trainer.precision=bf16-mixed"),
    (["trainer.accelerator=cpuu"], "load", "trainer.accelerator", "'cpuu'", "trainer.accelerator=cpu"),
    (["trainer.gradient_clip_algorithm=normm"], "load", "trainer.gradient_clip_algorithm", "'normm'", "=norm"),
    (["output.experiment=../x"], "load", "output.experiment", "'../x'", "output.experiment=x"),
]
"""Types, ranges, names and keys."""

_TOGETHER = [
    (["trainer.max_epochs=3"], "load", "trainer.max_epochs", "3", "leave trainer.max_epochs out"),
    (["trainer.max_stepss=3"], "load", "trainer.max_stepss", "3", "did you mean trainer.max_steps?"),
    (["trainer.overfit_batches=1"], "load", "trainer.overfit_batches", "1", "leave trainer.overfit_batches out"),
    (["trainer.barebones=true"], "load", "trainer.barebones", "true", "leave trainer.barebones out"),
    (["trainer.fast_dev_run=true"], "load", "trainer.fast_dev_run", "true", "leave trainer.fast_dev_run out"),
    (["trainer.gradient_clip_val=-1"], "load", "trainer.gradient_clip_val", "-1", "trainer.gradient_clip_val=1.0"),
    (["trainer.min_steps=501"], "load", "trainer.min_steps", "501", "leave trainer.min_steps out"),
    (["trainer.max_time={hours: 0}"], "load", "trainer.max_time", "0", "leave trainer.max_time out"),
    (["batch.tokens=100"], "load", "batch.tokens", "100", "batch.tokens=96"),
    (["batch.tokens=96", "batch.sequences=3"], "load", "batch.tokens", "96", "batch.sequences=null"),
    (["activation_checkpointing=[mlp]"], "load", "activation_checkpointing", "mlp", "activation_checkpointing=true"),
    (["model.pattern=[attention+mlp]"], "load", "model.pattern", "'attention+mlp'", "model.pattern=["),
    (["model.pattern=[ffn+attention]"], "load", "model.pattern", "'ffn+attention'", "model.pattern="),
    (["model.pattern=['0 * attention']"], "load", "model.pattern", "'0 * attention'", "model.pattern="),
    (["model.kind=encoder_decoder"], "load", "model.encoder", "nothing", "model.encoder={n_layers: 2}"),
    (["model.encoder={n_layers: 2}"], "load", "model.encoder", "'a section'", "model.encoder=null"),
    ([*TWO, "model.pattern=[attention+ffn]"], "load", "model.pattern", "attention+ffn", "model.cross="),
    ([*ENCODER, "model.prefix=true"], "load", "model.prefix", "true", "model.prefix=false"),
    ([*CLASSES, "model.tie_embeddings=true"], "load", "model.tie_embeddings", "true", "model.tie_embeddings=false"),
    (["model.shared=[attention]"], "load", "model.shared", "'attention'", "model.shared=[]"),
    (["model.attention.n_kv_heads=3"], "load", "model.attention.n_kv_heads", "3", "model.attention.n_kv_heads="),
    (["model.attention.qk_norm_over=projection"], "load", "model.attention.qk_norm_over", "'projection'",
     "model.attention.qk_norm={name: rmsnorm}"),
    ([*TWO, "model.cross.window=4"], "load", "model.cross.window", "4", "model.cross.window=null"),
    ([*_mixer("mamba"), "model.position={name: t5}"], "load", "model.position", "'t5'",
     "model.position={name: none}"),
    (["model.position={name: t5, n_buckets: 32, max_distance: 8}"], "load", "model.position.max_distance", "8",
     "model.position.max_distance=128"),
    (["model.position.scaling={name: llama3, factor: 2.0, high_freq_factor: 0.5}"], "load",
     "model.position.scaling.high_freq_factor", "0.5", "high_freq_factor=4"),
    (["model.position.scaling={name: yarn, factor: 2.0, beta_fast: 0.5}"], "load", "model.position.scaling.beta_fast",
     "0.5", "beta_fast=32"),
    (["model/head=language_model", "model.head.transform_bias=false"], "load", "model.head.transform_bias", "False",
     "model.head.transform=gelu"),
    (["optimizer=muon", "optimizer.scale=original"], "load", "optimizer.adamw_lr", "nothing",
     "optimizer.adamw_lr=1e-3"),
    ([*ENCODER, "objective.random=0.5"], "load", "objective.random", "0.5", "objective.random=0.2"),
    ([*MOE, "model.ffn.shared_gate=true"], "load", "model.ffn.shared_gate", "true", "model.ffn.shared_gate=false"),
    ([*MOE, "model.ffn.overflow=reroute"], "load", "model.ffn.overflow", "'reroute'", "model.ffn.capacity_factor=1.25"),
    ([*MOE, "model.ffn.balance=3"], "load", "model.ffn.balance", "3", "model.ffn.balance={aux_loss: 0.01}"),
    ([*MOE, "model.ffn.balance={aux_loss: 0.0, z_loss: 0.1}"], "load", "model.ffn.balance.aux_loss", "0.0",
     "model.ffn.balance.aux_loss=0.01"),
    ([*MOE, "model.ffn.router={name: topk, score: sigmoid, weights: selected}"], "load", "model.ffn.router.weights",
     "'selected'", "model.ffn.router.weights=renormalised"),
    ([*MOE, "model.ffn.expert={name: moe}"], "load", "model.ffn.expert.name", "'moe'", "model.ffn.expert.name=glu"),
    (["budget=params", "budget.target=many"], "load", "budget.target", "'many'",
     "budget.target=10M"),
    (["budget=params", "budget.target=20000", "budget.solve=model.ffn.d_fff"], "load", "budget.solve",
     "'model.ffn.d_fff'", "budget.solve=model.ffn.d_ff"),
    (["budget=params", "budget.target=100"], "load", "budget.target", "100", "budget.target="),
]  # fmt: skip
"""Keys that don't go together, in one component or in the model."""

_STATES = [
    (_mixer("mamba2", "dt_min=1.0"), "load", "model.ssm.dt_min", "1.0", "model.ssm.dt_min=0.001"),
    (_mixer("mamba2", "dt_limit=[1.0,0.5]"), "load", "model.ssm.dt_limit", "1.0", "dt_limit=[0.001,0.1]"),
    (_mixer("mamba2", "norm=false", "norm_before_gate=true"), "load", "model.ssm.norm_before_gate", "true",
     "model.ssm.norm=true"),
    (_mixer("s4d", "d_state=5"), "load", "model.ssm.d_state", "5", "model.ssm.d_state=6"),
    (_mixer("rglru", "decay_min=0.9999"), "load", "model.ssm.decay_min", "0.9999", "decay_min=0.9"),
    (_mixer("gated_delta", "n_key_heads=3"), "load", "model.ssm.n_key_heads", "3", "n_key_heads="),
    (_mixer("linear_attention", "feature=none"), "load", "model.ssm.divide", "nothing", "divide=norm"),
    (_mixer("linear_attention", "norm={name: rmsnorm}"), "load", "model.ssm.norm", "'rmsnorm'",
     "model.ssm.divide=norm"),
    (_mixer("mamba2", "d_head=7"), "checklist", "model.ssm.d_head", "P 7", "model.ssm.d_head=4"),
    (_mixer("mamba2", "d_head=16", "n_groups=3"), "checklist", "model.ssm.n_groups", "G 3",
     "model.ssm.n_groups=2"),
    (_mixer("rglru", "n_blocks=5"), "checklist", "model.ssm.n_blocks", "5 blocks",
     "model.ssm.n_blocks=4"),
    (_mixer("gated_delta", "n_heads=3"), "checklist", "model.ssm.n_heads", "3", "model.d_model=33"),
    (_mixer("linear_attention", "n_heads=3"), "checklist", "model.ssm.n_heads", "3", "model.d_model=33"),
]  # fmt: skip
"""Mixers that carry a state."""

_DIMENSIONS = [
    (["model.attention.n_heads=3", "model.attention.n_kv_heads=1"], "checklist", "model.attention.n_heads", "3",
     "model.d_model=36"),
    (["model.attention.d_head=5"], "checklist", "model.attention.d_head", "d_h 5", "model.attention.d_head=6"),
    (["model.d_model=33", "model.attention.d_head=8", "model.position={name: sinusoidal}"], "checklist",
     "model.position.name", "d_model 33", "model.d_model=34"),
    ([*ENCODER, "model.position={name: t5, n_buckets: 5}"], "checklist", "model.position.n_buckets", "5",
     "model.position.n_buckets=6"),
]  # fmt: skip
_MASKS = [
    (["objective=masked"], "checklist", "objective", "masked, with model.kind decoder", "model=encoder"),
    (["model=encoder"], "checklist", "objective", "next_token", "model=decoder, or objective=masked"),
    ([*CLASSES, "model/head=token_classifier"], "checklist", "model.head", "token_classes", "model/head=classifier"),
    (["objective=prefix_lm"], "checklist", "model.prefix", "false", "model.prefix=true"),
    (["model.prefix=true"], "checklist", "model.prefix", "true", "model.prefix=false"),
    ([*CLASSES, "fused_loss=true"], "checklist", "fused_loss", "classifier", "fused_loss=false"),
    ([*PAIRED, "batch.sequences=1"], "checklist", "batch.sequences", "1", "batch.sequences=32"),
    ([*PAIRED, "batch.micro_batch=2"], "checklist", "batch.micro_batch", "2 rows", "batch.micro_batch=null"),
    ([*MOE, "model.ffn.router={name: expert_choice}"], "checklist", "model.ffn.router", "in a decoder",
     "model.ffn.router={name: topk}"),
]  # fmt: skip
_POSITIONS = [
    (["model.position={name: learned, length: 16}"], "checklist", "model.position.length", "16 positions",
     "model.position.length=32"),
    (["model.position={name: learned}", "model.deploy_length=64"], "checklist", "model.position.length",
     "deployed at 64", "model.deploy_length=32"),
    ([*ENCODER, "model.position={name: none}"], "checklist", "model.position.name", "bidirectional",
     "model.position.name=rope"),
    (["model.attention.position={name: rope, theta: 500.0}"], "checklist", "model.position", "rope, unread",
     "model/position=none"),
]  # fmt: skip
_STRUCTURE = [
    (["model.local={name: gqa, n_heads: 4}"], "checklist", "model.local", "gqa, unused", "~model.local"),
    (["model.final_norm=false"], "checklist", "model.final_norm", "no norm", "model.final_norm=null"),
    (["model.attention.kernel=sdpa", "model.attention.softcap=20.0"], "checklist", "model.attention.kernel", "sdpa",
     "model.attention.kernel=null"),
    (["model.block.residual={name: constant, branch: 0.0}"], "checklist", "model.block.residual.branch", "branch 0",
     "model.block.residual.branch=1.0"),
]  # fmt: skip
_EXPERTS = [
    ([*MOE, "model.ffn.top_k=8"], "checklist", "model.ffn.top_k", "k 8", "model.ffn.top_k=2"),
    ([*MOE, "model.ffn.balance=null"], "checklist", "model.ffn.balance", "none", "model.ffn.balance={aux_loss: 0.01}"),
    ([*MOE, "model.ffn.router={name: switch}"], "checklist", "model.ffn.top_k", "2", "model.ffn.top_k=1"),
    ([*MOE, "model.ffn.router={name: grouped_topk, n_groups: 3, top_groups: 1}"], "checklist",
     "model.ffn.router.n_groups", "3", "model.ffn.router.n_groups=2"),
    ([*MOE, "model.ffn.router={name: grouped_topk, n_groups: 2, top_groups: 3}"], "checklist",
     "model.ffn.router.top_groups", "3", "model.ffn.router.top_groups=2"),
    ([*MOE, "model.ffn.router={name: grouped_topk, n_groups: 4, top_groups: 2}"], "checklist",
     "model.ffn.router.group_score", "two", "model.ffn.router.group_score=best"),
]  # fmt: skip
_VOCABULARY = [
    (["model.vocab_size=100"], "checklist", "model.vocab_size", "100 embedding rows", "model.vocab_size=null"),
    ([*CLASSES, "model.head.n_classes=2"], "checklist", "model.head.n_classes", "3 labels", "model.head.n_classes=3"),
]  # fmt: skip
"""The rules of the checklist, section by section."""

_DATA = [
    ([*LABELLED], "data", "objective", "labelled", "objective=classification"),
    (["data=files", "data.path=DIR/text.jsonl", "data.hub=x"], "load", "data.path", "text.jsonl", "data.hub=null"),
    (["data=files", "data.path=DIR/text.jsonl", "data.columns=[a,b]"], "load", "data.columns", "a",
     "data.columns=[text]"),
    (["data=files", "data.path=DIR/text.jsonl", "data.overlong=drop"], "load", "data.overlong", "'drop'",
     "leave data.overlong out"),
    (["data=files", "data.form=chat", "data.path=DIR/chat.jsonl", "data.packing=stream"], "load", "data.packing",
     "'stream'", "data.packing=padded"),
    ([*TASK, "data=brackets", "data.n_symbols=5"], "data", "data.n_symbols", "5", "data.n_symbols=6"),
    ([*TASK, "data=copy", "data.min_length=20"], "data", "data.min_length", "20", "data.min_length=15"),
    ([*TASK, "data=copy", "data.max_length=20"], "data", "data.max_length", "20", "data.max_length=15"),
    ([*TASK, "data=copy", "data.min_length=3", "data.max_length=2"], "data", "data.max_length", "2",
     "data.max_length=3"),
    ([*TASK, "data=recall", "data.n_pairs=9"], "data", "data.n_pairs", "9", "data.n_pairs=8"),
    ([*TASK, "data=recall", "data.n_symbols=8"], "data", "data.n_symbols", "8", "data.n_symbols=16"),
    ([*TASK, "data=induction", "model.train_length=2", "model.deploy_length=2"], "data", "model.train_length", "2",
     "model.train_length=3"),
    ([*TASK, "data=modular_addition", "model.train_length=2", "model.deploy_length=2"], "data", "model.train_length",
     "2", "model.train_length=3"),
    (["data=copy"], "data", "tokenizer", "bytes", "tokenizer=symbols"),
    (["model.train_length=4000", "model.deploy_length=4000"], "data", "model.train_length", "4000",
     "model.train_length="),
    ([*CLASSES, "model.train_length=4", "model.deploy_length=4"], "data", "data.overlong", "refuse",
     "data.overlong=truncate"),
    ([*CLASSES, "model.train_length=4", "data.overlong=drop", "model.deploy_length=4"], "data", "data.overlong", "drop",
     "data.overlong=truncate"),
    (["data=files", "data.form=chat", "data.path=DIR/chat.jsonl", "data.overlong=truncate", "model.train_length=4",
      "model.deploy_length=4"], "data", "data.overlong", "the answer begins", "model.train_length="),
]  # fmt: skip
_TRAINING = [
    (["optimizer=schedule_free"], "rehearsal", "schedule", "cosine", "schedule=constant"),
    (["optimizer=schedule_free", "schedule=constant", "ema={decay: 0.9}"], "rehearsal", "ema", "0.9", "ema=null"),
    (["optimizer.head_lr=0.001"], "rehearsal", "optimizer.head_lr", "0.001", "optimizer.head_lr=null"),
    (["trainer.precision=16-mixed"], "rehearsal", "trainer.precision", "16-mixed", "trainer.precision=bf16-mixed"),
    (["trainer.profiler=foo"], "rehearsal", "trainer.profiler", "'foo'", "leave trainer.profiler out"),
    (["trainer.limit_val_batches=-3"], "rehearsal", "trainer.limit_val_batches", "-3", "leave trainer.limit_val_batch"),
    (["trainer.strategy=foo"], "rehearsal", "trainer.strategy", "'foo'", "leave trainer.strategy out"),
    (["trainer=ddp", "batch.sequences=3", "trainer.accelerator=cpu", "trainer.devices=2"], "rehearsal",
     "batch.sequences", "3 sequences", "batch.sequences=4"),
]  # fmt: skip

BROKEN = [
    *_TYPES, *_TOGETHER, *_STATES, *_DIMENSIONS, *_MASKS, *_POSITIONS, *_STRUCTURE, *_EXPERTS, *_VOCABULARY,
    *_DATA, *_TRAINING,
]  # fmt: skip
