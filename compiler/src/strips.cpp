#include "strips.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;

namespace comem {

static const char *const BEGIN = "__comem_inline_strip_begin"; // i1 (ptr first, i64 bytes): may the plain loop run?
static const char *const ENTER = "__comem_inline_strip_enter"; // void (ptr first, i64 bytes): the plain loop begins
static const char *const END = "__comem_inline_strip_end";     // void (): the plain loop has ended
static const char *const OWN = "comem.own"; // named metadata: the access group of loads of the own range

// Bytes of a strip: wherever it begins in a line, it has no more lines than a hazard can name.
static const int64_t STRIP_BYTES_MAX = COMEM_HAZARD_LINES_MAX * COMEM_LINE_BYTES - (COMEM_LINE_BYTES - 1);
// Iterations below which the checks of single stores are cheaper.
static const int64_t ITERATIONS_MIN = 4;
// Bytes of one iteration's stores, from the first to the last.
static const int64_t SPAN_MAX = 512;
// The same for a nest of loops; and what its hazard may last: the iterations of all loops together.
static const unsigned NEST_STORES_MAX = 4, NEST_LOOPS_MAX = 4;
static const int64_t NEST_ITERATIONS_MAX = 16384;
// Times that a strip's units are made exclusive before its stores are checked one by one.
static const uint64_t ROUNDS_MAX = 2;

// Loads and stores of a loop that gains by more vectors at a time: with more of them the registers do not suffice.
static const unsigned SMALL_LOADS_MAX = 2, SMALL_STORES_MAX = 1;

static bool is_small(ArrayRef<BasicBlock *> blocks) {
    unsigned loads = 0, stores = 0;
    for (BasicBlock *block : blocks) {
        for (Instruction &instruction : *block) {
            loads += isa<LoadInst>(instruction);
            stores += isa<StoreInst>(instruction);
        }
    }
    return loads <= SMALL_LOADS_MAX && stores <= SMALL_STORES_MAX;
}

// A small loop's properties, and that the vectoriser takes four vectors at a time: they share one test of loads.
static MDNode *with_more_vectors(ArrayRef<BasicBlock *> blocks, MDNode *id) {
    LLVMContext &context = blocks.front()->getContext();
    if (!is_small(blocks)) {
        return id;
    }
    SmallVector<Metadata *, 4> properties = {nullptr};
    if (id) {
        for (const MDOperand &operand : drop_begin(id->operands())) {
            auto *property = dyn_cast<MDNode>(operand);
            auto *name = property && property->getNumOperands() ? dyn_cast<MDString>(property->getOperand(0)) : nullptr;
            if (name && (name->getString().starts_with("llvm.loop.vectorize") ||
                         name->getString().starts_with("llvm.loop.interleave"))) {
                return id; // the programmer says
            }
            properties.push_back(operand);
        }
    }
    auto *four = ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(context), 4));
    properties.push_back(MDNode::get(context, {MDString::get(context, "llvm.loop.interleave.count"), four}));
    MDNode *out = MDNode::getDistinct(context, properties);
    out->replaceOperandWith(0, out);
    return out;
}

namespace {

struct Plan {
    Loop *loop;
    const SCEVAddRecExpr *address; // of the first store found
    int64_t step, low, high;       // bytes, from that store's address
    SmallVector<LoadInst *, 8> own;
    Value *iterations, *start; // in the preheader
};

// A nest of loops whose stores all go to one range, which is known before it.
struct Nest {
    Loop *loop;
    SmallVector<const SCEV *, 4> taken;     // of each loop: times that it goes back
    SmallVector<const SCEV *, 4> steps;     // bytes that must not be negative, nor large
    SmallVector<const SCEV *, 4> low, high; // addresses: of each store, the lowest and the one behind the highest
    SmallVector<LoadInst *, 8> own;
    Value *fits, *first, *bytes; // in the preheader
};

class Maker {
  public:
    Maker(Function &f, FunctionAnalysisManager &analyses)
        : f(f), priv(), layout(f.getParent()->getDataLayout()), loops(analyses.getResult<LoopAnalysis>(f)),
          evolution(analyses.getResult<ScalarEvolutionAnalysis>(f)),
          tree(analyses.getResult<DominatorTreeAnalysis>(f)) {}

    bool run();

  private:
    bool nest(Loop &loop, Nest &out);
    bool is_counted(Loop &loop);
    bool bounds(Nest &nest, const SCEV *address, uint64_t bytes);
    void prepare(Nest &nest);
    void version(Nest &nest);
    bool plan(Loop &loop, Plan &out);
    bool address(Plan &plan, Value *pointer, Type *type, int64_t &offset);
    void prepare(Plan &plan);
    void cut(Plan &plan);
    void mark_own(ArrayRef<LoadInst *> loads);
    FunctionCallee mark(const char *name, Type *result, ArrayRef<Type *> arguments);

    Function &f;
    Private priv;
    const DataLayout &layout;
    LoopInfo &loops;
    ScalarEvolution &evolution;
    DominatorTree &tree;
};

bool Maker::run() {
    SmallVector<Nest, 4> nests;
    SmallVector<Loop *, 8> left(loops.begin(), loops.end());
    while (!left.empty()) {
        Loop *loop = left.pop_back_val();
        Nest found{};
        if (loop->isInnermost()) {
            continue;
        }
        if (nest(*loop, found)) {
            nests.push_back(found);
        } else {
            append_range(left, loop->getSubLoops());
        }
    }
    SmallVector<Plan, 8> plans;
    for (Loop *loop : loops.getLoopsInPreorder()) {
        Plan found{};
        Nest whole{};
        if (!loop->isInnermost()) {
            continue;
        }
        if (plan(*loop, found)) {
            plans.push_back(found);
        } else if (nest(*loop, whole)) {
            nests.push_back(whole);
        }
    }
    for (Nest &nest : nests) {
        prepare(nest);
    }
    for (Plan &plan : plans) {
        prepare(plan);
    }
    for (Nest &nest : nests) {
        version(nest);
    }
    for (Plan &plan : plans) {
        cut(plan);
    }
    return !plans.empty() || !nests.empty();
}

// The distance of an address in each iteration from that of the plan's first store, if it is constant.
bool Maker::address(Plan &plan, Value *pointer, Type *type, int64_t &offset) {
    auto *affine = dyn_cast<SCEVAddRecExpr>(evolution.getSCEV(pointer));
    if (!affine || affine->getLoop() != plan.loop || !affine->isAffine()) {
        return false;
    }
    auto *step = dyn_cast<SCEVConstant>(affine->getStepRecurrence(evolution));
    if (!step || step->getAPInt().getSignificantBits() > 32) {
        return false;
    }
    if (!plan.address) {
        plan.address = affine;
        plan.step = step->getAPInt().getSExtValue();
    }
    auto *distance = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(affine, plan.address));
    if (!distance || distance->getAPInt().getSignificantBits() > 32) {
        return false;
    }
    offset = distance->getAPInt().getSExtValue();
    return step->getAPInt().getSExtValue() == plan.step;
}

// A loop that tests at its end whether it goes back, and whose iterations are known before it.
bool Maker::is_counted(Loop &loop) {
    BasicBlock *latch = loop.getLoopLatch();
    if (!loop.isLoopSimplifyForm() || !latch || loop.getExitingBlock() != latch || !loop.getUniqueExitBlock() ||
        !isa<BranchInst>(latch->getTerminator())) {
        return false;
    }
    const SCEV *taken = evolution.getBackedgeTakenCount(&loop);
    return !isa<SCEVCouldNotCompute>(taken) && evolution.getTypeSizeInBits(taken->getType()) <= 64;
}

// Notes the range of an address over all iterations of the nest.
bool Maker::bounds(Nest &nest, const SCEV *address, uint64_t bytes) {
    Type *i64 = Type::getInt64Ty(f.getContext());
    const SCEV *below = evolution.getZero(i64), *above = evolution.getConstant(i64, bytes);
    while (auto *affine = dyn_cast<SCEVAddRecExpr>(address)) {
        if (!nest.loop->contains(affine->getLoop())) {
            break;
        }
        const SCEV *step = affine->getStepRecurrence(evolution);
        const SCEV *taken = evolution.getNoopOrZeroExtend(evolution.getBackedgeTakenCount(affine->getLoop()), i64);
        if (!affine->isAffine() || step->getType() != i64 || !evolution.isLoopInvariant(step, nest.loop)) {
            return false;
        }
        const SCEV *way = evolution.getMulExpr(step, taken);
        if (auto *known = dyn_cast<SCEVConstant>(step)) {
            if (known->getAPInt().abs().ugt(STRIP_BYTES_MAX)) {
                return false;
            }
            (known->getAPInt().isNegative() ? below : above) =
                evolution.getAddExpr(known->getAPInt().isNegative() ? below : above, way);
        } else {
            nest.steps.push_back(step);
            above = evolution.getAddExpr(above, way);
        }
        address = affine->getStart();
    }
    if (!evolution.isLoopInvariant(address, nest.loop)) {
        return false;
    }
    const SCEV *low = evolution.getAddExpr(address, below), *high = evolution.getAddExpr(address, above);
    if (!is_contained(nest.low, low)) {
        nest.low.push_back(low);
    }
    if (!is_contained(nest.high, high)) {
        nest.high.push_back(high);
    }
    return nest.low.size() <= NEST_STORES_MAX && nest.high.size() <= NEST_STORES_MAX;
}

bool Maker::nest(Loop &loop, Nest &out) {
    out.loop = &loop;
    for (Loop *each : loop.getLoopsInPreorder()) {
        const SCEV *taken = is_counted(*each) ? evolution.getBackedgeTakenCount(each) : nullptr;
        if (!taken || !evolution.isLoopInvariant(taken, &loop)) {
            return false;
        }
        out.taken.push_back(taken);
    }
    if (out.taken.size() > NEST_LOOPS_MAX) {
        return false;
    }
    SmallVector<const SCEV *, 8> stored;
    SmallVector<LoadInst *, 8> loads;
    for (BasicBlock *block : loop.blocks()) {
        for (Instruction &instruction : *block) {
            if (auto *store = dyn_cast<StoreInst>(&instruction)) {
                if (!store->isSimple()) {
                    return false;
                }
                if (!priv.is(store->getPointerOperand())) {
                    stored.push_back(evolution.getSCEV(store->getPointerOperand()));
                    if (!bounds(out, stored.back(), layout.getTypeStoreSize(store->getValueOperand()->getType()))) {
                        return false;
                    }
                }
            } else if (auto *load = dyn_cast<LoadInst>(&instruction)) {
                if (!load->isSimple()) {
                    return false;
                }
                loads.push_back(load);
            } else if ((instruction.mayReadOrWriteMemory() || instruction.mayHaveSideEffects()) &&
                       !isa<AssumeInst>(instruction)) {
                return false;
            }
        }
    }
    for (LoadInst *load : loads) {
        if (is_contained(stored, evolution.getSCEV(load->getPointerOperand()))) {
            out.own.push_back(load);
        }
    }
    Instruction *at = loop.getLoopPreheader()->getTerminator();
    SCEVExpander expander(evolution, layout, "comem");
    auto safe = [&](const SCEV *value) { return expander.isSafeToExpandAt(value, at); };
    return !stored.empty() && all_of(out.taken, safe) && all_of(out.steps, safe) && all_of(out.low, safe) &&
           all_of(out.high, safe);
}

void Maker::prepare(Nest &nest) {
    formLCSSARecursively(*nest.loop, tree, &loops, &evolution);
    Instruction *at = nest.loop->getLoopPreheader()->getTerminator();
    SCEVExpander expander(evolution, layout, "comem");
    IRBuilder<> builder(at);
    auto expand = [&](const SCEV *value) {
        Value *out = expander.expandCodeFor(value, value->getType(), at);
        builder.SetInsertPoint(at);
        return out->getType()->isPointerTy() ? builder.CreatePtrToInt(out, builder.getInt64Ty())
                                             : builder.CreateZExt(out, builder.getInt64Ty());
    };
    nest.fits = builder.getTrue();
    auto require = [&](Value *condition) { nest.fits = builder.CreateAnd(nest.fits, condition); };
    Value *iterations = builder.getInt64(1);
    for (const SCEV *taken : nest.taken) {
        Value *times = expand(taken);
        require(builder.CreateICmpULT(times, builder.getInt64(STRIP_BYTES_MAX)));
        iterations = builder.CreateMul(iterations, builder.CreateAdd(times, builder.getInt64(1)));
    }
    require(builder.CreateICmpULT(iterations, builder.getInt64(NEST_ITERATIONS_MAX)));
    require(builder.CreateICmpUGE(iterations, builder.getInt64(2 * ITERATIONS_MIN)));
    for (const SCEV *step : nest.steps) {
        require(builder.CreateICmpULT(expand(step), builder.getInt64(STRIP_BYTES_MAX)));
    }
    Value *first = nullptr, *behind = nullptr;
    for (const SCEV *low : nest.low) {
        Value *other = expand(low);
        first = first ? builder.CreateBinaryIntrinsic(Intrinsic::umin, first, other) : other;
    }
    for (const SCEV *high : nest.high) {
        Value *other = expand(high);
        behind = behind ? builder.CreateBinaryIntrinsic(Intrinsic::umax, behind, other) : other;
    }
    nest.first = builder.CreateIntToPtr(first, builder.getPtrTy());
    nest.bytes = builder.CreateSub(behind, first);
    require(builder.CreateICmpULE(nest.bytes, builder.getInt64(STRIP_BYTES_MAX)));
}

// Makes of a nest of loops
//
//     if it fits and begin() says yes: enter(); a copy of the nest; end()
//     else: the nest
void Maker::version(Nest &nest) {
    LLVMContext &context = f.getContext();
    Loop &loop = *nest.loop;
    BasicBlock *before = loop.getLoopPreheader(), *header = loop.getHeader(), *latch = loop.getLoopLatch();
    BasicBlock *exit = loop.getUniqueExitBlock();
    ValueToValueMapTy map;
    SmallVector<BasicBlock *, 16> copies;
    for (BasicBlock *block : loop.blocks()) {
        BasicBlock *copy = CloneBasicBlock(block, map, ".strip", &f);
        map[block] = copy;
        copies.push_back(copy);
    }
    auto make = [&](const char *name) { return BasicBlock::Create(context, name, &f, header); };
    BasicBlock *check = make("comem.strip.check"), *fast = make("comem.strip.fast"), *end = make("comem.strip.end");
    BasicBlock *plain = make("comem.strip.none");
    map[before] = fast;
    map[exit] = end;
    remapInstructionsInBlocks(copies, map);
    for (Loop *each : loop.getLoopsInPreorder()) {
        if (each->isInnermost()) {
            Instruction *back = cast<BasicBlock>(map[each->getLoopLatch()])->getTerminator();
            back->setMetadata(LLVMContext::MD_loop,
                              with_more_vectors(each->getBlocks(), back->getMetadata(LLVMContext::MD_loop)));
        }
    }
    SmallVector<LoadInst *, 8> own;
    for (LoadInst *load : nest.own) {
        own.push_back(cast<LoadInst>(map[load]));
    }
    mark_own(own);
    for (PHINode &phi : header->phis()) {
        phi.replaceIncomingBlockWith(before, plain);
    }
    for (PHINode &phi : exit->phis()) {
        Value *value = phi.getIncomingValueForBlock(latch);
        phi.addIncoming(map.count(value) ? static_cast<Value *>(map[value]) : value, end);
    }
    BranchInst *way = cast<BranchInst>(before->getTerminator());
    IRBuilder<> at(way);
    at.CreateCondBr(nest.fits, check, plain);
    way->eraseFromParent();
    Type *pointer = at.getPtrTy(), *i64 = at.getInt64Ty();
    at.SetInsertPoint(check);
    MDNode *likely = MDBuilder(context).createBranchWeights(1 << 20, 1);
    at.CreateCondBr(at.CreateCall(mark(BEGIN, at.getInt1Ty(), {pointer, i64}), {nest.first, nest.bytes}), fast, plain,
                    likely);
    at.SetInsertPoint(fast);
    at.CreateCall(mark(ENTER, at.getVoidTy(), {pointer, i64}), {nest.first, nest.bytes});
    at.CreateBr(cast<BasicBlock>(map[header]));
    at.SetInsertPoint(end);
    at.CreateCall(mark(END, at.getVoidTy(), {}));
    at.CreateBr(exit);
    at.SetInsertPoint(plain);
    at.CreateBr(header);
}

bool Maker::plan(Loop &loop, Plan &out) {
    out.loop = &loop;
    if (!is_counted(loop)) {
        return false;
    }
    const SCEV *taken = evolution.getBackedgeTakenCount(&loop);
    unsigned known = evolution.getSmallConstantTripCount(&loop);
    if (known && known < 2 * ITERATIONS_MIN) {
        return false;
    }
    SmallVector<LoadInst *, 8> loads;
    for (BasicBlock *block : loop.blocks()) {
        for (Instruction &instruction : *block) {
            if (auto *store = dyn_cast<StoreInst>(&instruction)) {
                if (!store->isSimple()) {
                    return false;
                }
                if (priv.is(store->getPointerOperand())) {
                    continue;
                }
                int64_t offset;
                Type *type = store->getValueOperand()->getType();
                if (!address(out, store->getPointerOperand(), type, offset)) {
                    return false;
                }
                out.low = std::min(out.low, offset);
                out.high = std::max(out.high, offset + int64_t(layout.getTypeStoreSize(type)));
            } else if (auto *load = dyn_cast<LoadInst>(&instruction)) {
                if (!load->isSimple()) {
                    return false;
                }
                loads.push_back(load);
            } else if (instruction.mayReadOrWriteMemory() || instruction.mayHaveSideEffects()) {
                if (!isa<AssumeInst>(instruction)) {
                    return false;
                }
            }
        }
    }
    if (!out.address || out.step == 0 || out.high - out.low > SPAN_MAX ||
        std::abs(out.step) * 2 * ITERATIONS_MIN + out.high - out.low > STRIP_BYTES_MAX) {
        return false;
    }
    for (LoadInst *load : loads) {
        int64_t offset;
        if (address(out, load->getPointerOperand(), load->getType(), offset) && offset >= out.low &&
            offset + int64_t(layout.getTypeStoreSize(load->getType())) <= out.high) {
            out.own.push_back(load);
        }
    }
    Instruction *at = loop.getLoopPreheader()->getTerminator();
    SCEVExpander expander(evolution, layout, "comem");
    return expander.isSafeToExpandAt(taken, at) && expander.isSafeToExpandAt(out.address->getStart(), at);
}

// What needs the analyses, before any loop changes.
void Maker::prepare(Plan &plan) {
    formLCSSA(*plan.loop, tree, &loops, &evolution);
    Instruction *at = plan.loop->getLoopPreheader()->getTerminator();
    SCEVExpander expander(evolution, layout, "comem");
    const SCEV *taken = evolution.getBackedgeTakenCount(plan.loop);
    IRBuilder<> builder(at);
    Value *count = expander.expandCodeFor(taken, taken->getType(), at);
    builder.SetInsertPoint(at);
    plan.iterations =
        builder.CreateAdd(builder.CreateZExt(count, builder.getInt64Ty()), builder.getInt64(1), "comem.iterations");
    plan.start = expander.expandCodeFor(plan.address->getStart(), builder.getPtrTy(), at);
}

FunctionCallee Maker::mark(const char *name, Type *result, ArrayRef<Type *> arguments) {
    FunctionCallee out = f.getParent()->getOrInsertFunction(name, FunctionType::get(result, arguments, false));
    auto *function = cast<Function>(out.getCallee());
    function->setDoesNotThrow();
    function->setWillReturn();
    return out;
}

static MDNode *without_vectors(LLVMContext &context) {
    auto property = [&](const char *name, bool value) {
        return MDNode::get(context, {MDString::get(context, name),
                                     ConstantAsMetadata::get(ConstantInt::get(Type::getInt1Ty(context), value))});
    };
    auto *unroll = MDNode::get(context, MDString::get(context, "llvm.loop.unroll.disable"));
    auto *out = MDNode::getDistinct(context, {nullptr, property("llvm.loop.vectorize.enable", false), unroll});
    out->replaceOperandWith(0, out);
    return out;
}

void Maker::mark_own(ArrayRef<LoadInst *> loads) {
    NamedMDNode *named = f.getParent()->getOrInsertNamedMetadata(OWN);
    if (named->getNumOperands() == 0) {
        named->addOperand(MDNode::getDistinct(f.getContext(), {}));
    }
    for (LoadInst *load : loads) {
        load->setMetadata(LLVMContext::MD_access_group,
                          uniteAccessGroups(load->getMetadata(LLVMContext::MD_access_group), named->getOperand(0)));
    }
}

// Makes of a loop
//
//     outer: count = min(iterations left, what fits); if few, or begin() says no: slow
//     fast:  enter(); the loop, `count` times; end(); next
//     slow:  a copy of the loop, `count` times; next
//     next:  done += count; outer, or the exit
void Maker::cut(Plan &plan) {
    LLVMContext &context = f.getContext();
    Loop &loop = *plan.loop;
    BasicBlock *before = loop.getLoopPreheader(), *header = loop.getHeader(), *latch = loop.getLoopLatch();
    BasicBlock *exit = loop.getUniqueExitBlock();
    MDNode *id = latch->getTerminator()->getMetadata(LLVMContext::MD_loop);

    ValueToValueMapTy map;
    SmallVector<BasicBlock *, 8> copies;
    for (BasicBlock *block : loop.blocks()) {
        BasicBlock *copy = CloneBasicBlock(block, map, ".slow", &f);
        map[block] = copy;
        copies.push_back(copy);
    }
    remapInstructionsInBlocks(copies, map);
    mark_own(plan.own);
    auto *slow_header = cast<BasicBlock>(map[header]), *slow_latch = cast<BasicBlock>(map[latch]);
    auto make = [&](const char *name) { return BasicBlock::Create(context, name, &f, header); };
    BasicBlock *outer = make("comem.strip"), *check = make("comem.strip.check"), *fast = make("comem.strip.fast");
    BasicBlock *end = make("comem.strip.end"), *slow = make("comem.strip.slow"), *next = make("comem.strip.next");
    Type *i64 = Type::getInt64Ty(context);

    before->getTerminator()->replaceSuccessorWith(header, outer);
    IRBuilder<> at(outer);
    at.SetCurrentDebugLocation(latch->getTerminator()->getDebugLoc());
    PHINode *done = at.CreatePHI(i64, 2, "comem.done");
    done->addIncoming(at.getInt64(0), before);
    for (PHINode &phi : header->phis()) {
        auto *copy = cast<PHINode>(map[&phi]);
        PHINode *carried = at.CreatePHI(phi.getType(), 2);
        carried->addIncoming(phi.getIncomingValueForBlock(before), before);
        PHINode *after = PHINode::Create(phi.getType(), 2, "", next);
        after->addIncoming(phi.getIncomingValueForBlock(latch), end);
        after->addIncoming(copy->getIncomingValueForBlock(slow_latch), slow_latch);
        carried->addIncoming(after, next);
        phi.setIncomingValueForBlock(before, carried);
        phi.replaceIncomingBlockWith(before, fast);
        copy->setIncomingValueForBlock(before, carried);
        copy->replaceIncomingBlockWith(before, slow);
    }
    for (PHINode &phi : exit->phis()) {
        Value *value = phi.getIncomingValueForBlock(latch);
        PHINode *after = PHINode::Create(phi.getType(), 2, "", next);
        after->addIncoming(value, end);
        Value *copy = map.count(value) ? static_cast<Value *>(map[value]) : value;
        after->addIncoming(copy, slow_latch);
        phi.setIncomingValueForBlock(latch, after);
        phi.replaceIncomingBlockWith(latch, next);
    }

    int64_t width = std::abs(plan.step), span = plan.high - plan.low;
    int64_t fit = (STRIP_BYTES_MAX - span) / width + 1;
    fit = fit >= 32 ? fit / 32 * 32 : fit;
    Value *left = at.CreateSub(plan.iterations, done);
    Value *count = at.CreateBinaryIntrinsic(Intrinsic::umin, left, at.getInt64(fit), nullptr, "comem.count");
    Value *last = at.CreateSub(count, at.getInt64(1));
    Value *offset = at.CreateAdd(at.CreateMul(done, at.getInt64(plan.step)), at.getInt64(plan.low));
    if (plan.step < 0) {
        offset = at.CreateAdd(offset, at.CreateMul(last, at.getInt64(plan.step)));
    }
    Value *first = at.CreateGEP(at.getInt8Ty(), plan.start, offset, "comem.first");
    Value *bytes = at.CreateAdd(at.CreateMul(last, at.getInt64(width)), at.getInt64(span), "comem.bytes");
    at.CreateCondBr(at.CreateICmpUGE(count, at.getInt64(ITERATIONS_MIN)), check, slow);

    Type *pointer = at.getPtrTy();
    at.SetInsertPoint(check);
    MDNode *likely = MDBuilder(context).createBranchWeights(1 << 20, 1);
    at.CreateCondBr(at.CreateCall(mark(BEGIN, at.getInt1Ty(), {pointer, i64}), {first, bytes}), fast, slow, likely);
    at.SetInsertPoint(fast);
    at.CreateCall(mark(ENTER, at.getVoidTy(), {pointer, i64}), {first, bytes});
    at.CreateBr(header);
    at.SetInsertPoint(end);
    at.CreateCall(mark(END, at.getVoidTy(), {}));
    at.CreateBr(next);
    at.SetInsertPoint(slow);
    at.CreateBr(slow_header);

    auto counted = [&](BasicBlock *header, BasicBlock *latch, BasicBlock *from, BasicBlock *to, MDNode *id) {
        IRBuilder<> at(header, header->begin());
        PHINode *k = at.CreatePHI(i64, 2, "comem.k");
        latch->getTerminator()->eraseFromParent();
        at.SetInsertPoint(latch);
        Value *more = at.CreateAdd(k, at.getInt64(1), "", true, true);
        k->addIncoming(at.getInt64(0), from);
        k->addIncoming(more, latch);
        at.CreateCondBr(at.CreateICmpEQ(more, count), to, header)->setMetadata(LLVMContext::MD_loop, id);
    };
    counted(header, latch, fast, end, with_more_vectors(loop.getBlocks(), id));
    counted(slow_header, slow_latch, slow, next, without_vectors(context));

    at.SetInsertPoint(next);
    Value *all = at.CreateAdd(done, count);
    done->addIncoming(all, next);
    at.CreateCondBr(at.CreateICmpEQ(all, plan.iterations), exit, outer);
}

} // namespace

PreservedAnalyses MakeStrips::run(Function &f, FunctionAnalysisManager &analyses) {
    if (!Options::get().strips || f.hasOptSize() || f.hasOptNone()) {
        return PreservedAnalyses::all();
    }
    return Maker(f, analyses).run() ? PreservedAnalyses::none() : PreservedAnalyses::all();
}

void Strip::lower(IRBuilder<> &at) const {
    at.CreateFence(AtomicOrdering::SequentiallyConsistent, SyncScope::SingleThread);
    at.CreateAlignedStore(at.getInt64(0), hazard, Align(8));
}

void Strip::raise(IRBuilder<> &at, BasicBlock *fine, BasicBlock *taken) const {
    BasicBlock *before = at.GetInsertBlock();
    Value *address = at.CreatePtrToInt(first, at.getInt64Ty());
    Value *behind = at.CreateAdd(at.CreateAdd(address, bytes), at.getInt64(-1));
    Value *first_line = at.CreateLShr(address, COMEM_LINE_SHIFT), *last_line = at.CreateLShr(behind, COMEM_LINE_SHIFT);
    Value *lines = at.CreateAdd(at.CreateSub(last_line, first_line), at.getInt64(1));
    Value *word = at.CreateOr(address, at.CreateShl(lines, COMEM_HAZARD_LINES_SHIFT));
    at.CreateAlignedStore(Options::get().no_hazards ? at.getInt64(0) : word, hazard, Align(8));
    at.CreateFence(AtomicOrdering::SequentiallyConsistent, SyncScope::SingleThread);
    BasicBlock *entries =
        BasicBlock::Create(at.getContext(), "comem.entries", before->getParent(), before->getNextNode());
    BasicBlock *more =
        BasicBlock::Create(at.getContext(), "comem.entries", before->getParent(), entries->getNextNode());
    at.CreateBr(entries);
    at.SetInsertPoint(entries);
    PHINode *line = at.CreatePHI(at.getInt64Ty(), 2);
    line->addIncoming(first_line, before);
    Value *table = at.CreateIntToPtr(at.getInt64(COMEM_TABLE), at.getPtrTy());
    Value *entry = at.CreateAlignedLoad(at.getInt16Ty(), at.CreateGEP(at.getInt16Ty(), table, line), Align(2));
    MDNode *unlikely = MDBuilder(at.getContext()).createBranchWeights(1, 1 << 20);
    at.CreateCondBr(at.CreateICmpNE(entry, at.getInt16(0)), taken, more, unlikely);
    at.SetInsertPoint(more);
    Value *next = at.CreateAdd(line, at.getInt64(1));
    line->addIncoming(next, more);
    at.CreateCondBr(at.CreateICmpUGT(next, last_line), fine, entries);
}

void Strip::raise_again(IRBuilder<> &at, Runtime &runtime, BasicBlock *fine) const {
    Function *f = at.GetInsertBlock()->getParent();
    auto *again = BasicBlock::Create(at.getContext(), "comem.again", f),
         *own = BasicBlock::Create(at.getContext(), "comem.again", f);
    at.CreateBr(again);
    at.SetInsertPoint(again);
    raise(at, fine, own);
    at.SetInsertPoint(own);
    lower(at);
    runtime.own(at, first, bytes, true);
    at.CreateBr(again);
}

StripMap::StripMap(Function &function) : function(function) {
    if (NamedMDNode *named = function.getParent()->getNamedMetadata(OWN)) {
        own = named->getOperand(0);
    }
    SmallVector<CallInst *, 8> marks;
    for (BasicBlock &block : function) {
        for (Instruction &instruction : block) {
            auto *call = dyn_cast<CallInst>(&instruction);
            if (call && is_runtime(call->getCalledFunction()) &&
                call->getCalledFunction()->getName().contains("_strip_")) {
                marks.push_back(call);
            }
        }
    }
    for (CallInst *call : marks) {
        StringRef name = call->getCalledFunction()->getName();
        (name == BEGIN ? begins : name == ENTER ? enters : ends).push_back(call);
        SplitBlock(call->getParent(), name == ENTER ? call->getNextNode() : call);
    }
    for (CallInst *enter : enters) {
        region(enter);
    }
}

// The blocks from a mark that the plain loop begins to those that it has ended.
void StripMap::region(CallInst *enter) {
    strips.push_back(std::make_unique<Strip>(Strip{nullptr, enter->getArgOperand(0), enter->getArgOperand(1)}));
    SmallVector<BasicBlock *, 16> left = {enter->getParent()->getSingleSuccessor()};
    while (!left.empty()) {
        BasicBlock *block = left.pop_back_val();
        if (auto *call = dyn_cast<CallInst>(&block->front()); call && is_contained(ends, call)) {
            continue;
        }
        if (!blocks.try_emplace(block, strips.back().get()).second) {
            broken |= blocks[block] != strips.back().get();
            continue;
        }
        for (Instruction &instruction : *block) {
            auto *call = dyn_cast<CallBase>(&instruction);
            broken |= instruction.isAtomic() || isa<ReturnInst>(instruction) || instruction.mayThrow();
            broken |= call && !isa<IntrinsicInst>(call) && call->mayReadOrWriteMemory();
        }
        append_range(left, successors(block));
    }
}

void StripMap::replace(Value *loaded, Value *tested) {
    for (auto &strip : strips) {
        for (WeakTrackingVH *part : {&strip->first, &strip->bytes}) {
            if (*part == loaded) {
                *part = tested;
            }
        }
    }
}

const Strip *StripMap::of(const BasicBlock *block) const { return broken ? nullptr : blocks.lookup(block); }

bool StripMap::is_own(const LoadInst &load) const {
    MDNode *groups = load.getMetadata(LLVMContext::MD_access_group);
    return own && groups && of(load.getParent()) && (groups == own || is_contained(groups->operands(), own));
}

void StripMap::begin(CallInst *mark, Value *hazard, Runtime &runtime) {
    IRBuilder<> at(mark);
    if (broken) {
        mark->replaceAllUsesWith(at.getFalse());
        mark->eraseFromParent();
        return;
    }
    Strip strip{hazard, mark->getArgOperand(0), mark->getArgOperand(1)};
    BasicBlock *before = mark->getParent();
    BasicBlock *rest = before->splitBasicBlock(mark, "comem.strip");
    auto make = [&](const char *name) { return BasicBlock::Create(function.getContext(), name, &function); };
    BasicBlock *round = make("comem.round"), *fine = make("comem.fine"), *taken = make("comem.taken"),
               *own = make("comem.own");
    before->getTerminator()->eraseFromParent();
    at.SetInsertPoint(before);
    at.CreateBr(round);
    round->moveAfter(before);
    fine->moveBefore(rest);
    at.SetInsertPoint(round);
    PHINode *rounds = at.CreatePHI(at.getInt64Ty(), 2);
    rounds->addIncoming(at.getInt64(0), before);
    strip.raise(at, fine, taken);
    at.SetInsertPoint(fine);
    at.CreateBr(rest);
    at.SetInsertPoint(taken);
    strip.lower(at);
    at.CreateCondBr(at.CreateICmpEQ(rounds, at.getInt64(ROUNDS_MAX)), rest, own);
    at.SetInsertPoint(own);
    runtime.own(at, strip.first, strip.bytes, false);
    rounds->addIncoming(at.CreateAdd(rounds, at.getInt64(1)), own);
    at.CreateBr(round);
    PHINode *out = PHINode::Create(at.getInt1Ty(), 2, "", rest->begin());
    out->addIncoming(at.getTrue(), fine);
    out->addIncoming(at.getFalse(), taken);
    mark->replaceAllUsesWith(out);
    mark->eraseFromParent();
}

void StripMap::expand(Value *hazard, Runtime &runtime) {
    for (auto &strip : strips) {
        strip->hazard = hazard;
    }
    for (CallInst *mark : begins) {
        begin(mark, hazard, runtime);
    }
    for (CallInst *mark : enters) {
        mark->eraseFromParent();
    }
    for (CallInst *mark : ends) {
        if (!broken) {
            IRBuilder<> at(mark);
            Strip{hazard, nullptr, nullptr}.lower(at);
        }
        mark->eraseFromParent();
    }
}

} // namespace comem
