// Checks of stores by the entry of their line, inside a hazard.
//
//     *hazard = address; if (entry(address) != 0) cold; store; *hazard = 0
//
// Stores next to each other that stay within a few lines share one hazard: the entries of all their lines are checked.
// The cold path lowers the hazard and makes the stores by calls.
#include "strips.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace comem {

// Bytes from the first to the last store of a group. More would need more checks of entries than it saves.
static const int64_t SPAN_MAX = 4 * COMEM_LINE_BYTES;

namespace {

// Stores in the order of the program, with their distances from the first.
struct Group {
    SmallVector<StoreInst *, 8> stores;
    SmallVector<int64_t, 8> offsets;
    bool another_follows = false; // its hazard replaces this one at once
};

class Stores {
  public:
    Stores(Function &f, FunctionAnalysisManager &analyses, StripMap &strips, Private &priv, Runtime &runtime,
           Counts &counts, long &leave_out)
        : f(f), strips(strips), priv(priv), runtime(runtime), counts(counts), leave_out(leave_out),
          layout(f.getParent()->getDataLayout()), evolution(analyses.getResult<ScalarEvolutionAnalysis>(f)) {}

    void run();

  private:
    void collect(BasicBlock &block);
    bool is_private(Instruction &at, Value *pointer, Type *type);
    bool joins(Group &group, StoreInst &store);
    bool left_out() { return leave_out != 0 && --leave_out == 0; }
    int64_t end_of(StoreInst &store, int64_t offset) const {
        return offset + int64_t(layout.getTypeStoreSize(store.getValueOperand()->getType()));
    }

    void raise(IRBuilder<> &at, Value *first, int64_t span, Align align, BasicBlock *stores, BasicBlock *cold);
    Value *entry_is_taken(IRBuilder<> &at, Value *address);
    void lower(IRBuilder<> &at);
    void fence(IRBuilder<> &at) { at.CreateFence(AtomicOrdering::SequentiallyConsistent, SyncScope::SingleThread); }
    void emit(Group &group);
    void emit_atomic(Instruction &atomic);
    void place_hazard();

    Function &f;
    StripMap &strips;
    Private &priv;
    Runtime &runtime;
    Counts &counts;
    long &leave_out;
    const DataLayout &layout;
    ScalarEvolution &evolution;
    SmallVector<Group, 16> groups;
    SmallVector<Instruction *, 8> atomics;
    Instruction *hazard = nullptr; // stands for the hazard's address until all of its uses are known
};

bool Stores::is_private(Instruction &at, Value *pointer, Type *type) {
    if (pointer->getType()->getPointerAddressSpace() != 0) {
        return true;
    }
    if (!priv.is(pointer)) {
        return false;
    }
    if (Options::get().verify && !Private::is_plainly_alloca(pointer)) {
        IRBuilder<> builder(&at);
        runtime.verify(builder, pointer, layout.getTypeStoreSize(type), at.getDebugLoc());
    }
    return true;
}

void Stores::run() {
    SmallVector<BasicBlock *, 32> blocks;
    for (BasicBlock &block : f) {
        blocks.push_back(&block);
    }
    for (BasicBlock *block : blocks) {
        collect(*block);
    }
    if (groups.empty() && atomics.empty() && strips.empty()) {
        return;
    }
    Type *pointer = PointerType::get(f.getContext(), 0);
    hazard = new FreezeInst(PoisonValue::get(pointer), "comem.hazard", f.getEntryBlock().getFirstInsertionPt());
    for (Group &group : groups) {
        if (!left_out()) {
            emit(group);
        }
    }
    for (Instruction *atomic : atomics) {
        if (!left_out()) {
            emit_atomic(*atomic);
        }
    }
    counts.strips += strips.size();
    strips.expand(hazard, runtime);
    place_hazard();
}

// Finds the groups of stores of a block. Nothing that touches memory stands between the stores of a group.
void Stores::collect(BasicBlock &block) {
    Group group;
    auto end = [&] {
        if (!group.stores.empty()) {
            groups.push_back(std::move(group));
        }
        group = {};
    };
    SmallVector<Instruction *, 64> instructions;
    for (Instruction &instruction : block) {
        instructions.push_back(&instruction);
    }
    for (Instruction *instruction : instructions) {
        if (auto *store = dyn_cast<StoreInst>(instruction)) {
            counts.stores++;
            if (is_private(*store, store->getPointerOperand(), store->getValueOperand()->getType())) {
                end();
                continue;
            }
            counts.stores_checked++;
            store->setMetadata(LLVMContext::MD_nontemporal,
                               nullptr); // such a store could come after the hazard is lowered
            if (strips.of(&block)) {     // its strip's hazard is up
                continue;
            }
            if (!store->isSimple() || !joins(group, *store)) {
                group.another_follows = true;
                end();
                group.stores.push_back(store);
                group.offsets.push_back(0);
            }
            if (!store->isSimple()) {
                end();
            }
        } else if (isa<AtomicRMWInst>(instruction) || isa<AtomicCmpXchgInst>(instruction)) {
            end();
            counts.atomics++;
            Type *type =
                isa<AtomicRMWInst>(instruction) ? instruction->getType() : instruction->getOperand(1)->getType();
            if (!is_private(*instruction, instruction->getOperand(0), type)) {
                counts.atomics_checked++;
                atomics.push_back(instruction);
            }
        } else if (instruction->mayReadOrWriteMemory() || instruction->mayHaveSideEffects()) {
            end();
        }
    }
    end();
}

bool Stores::joins(Group &group, StoreInst &store) {
    if (group.stores.empty()) {
        return false;
    }
    const SCEV *distance = evolution.getMinusSCEV(evolution.getSCEV(store.getPointerOperand()),
                                                  evolution.getSCEV(group.stores.front()->getPointerOperand()));
    auto *known = dyn_cast<SCEVConstant>(distance);
    if (!known || known->getAPInt().getSignificantBits() > 32) {
        return false;
    }
    int64_t offset = known->getAPInt().getSExtValue(), low = offset, high = end_of(store, offset);
    for (auto [other, at] : zip(group.stores, group.offsets)) {
        low = std::min(low, at);
        high = std::max(high, end_of(*other, at));
    }
    // As many checks of entries as stores at most.
    if (high - low > SPAN_MAX || (high - low - 1) / int64_t(COMEM_LINE_BYTES) > int64_t(group.stores.size()) - 1) {
        return false;
    }
    group.stores.push_back(&store);
    group.offsets.push_back(offset);
    return true;
}

// Whether the entry of an address is not 0.
Value *Stores::entry_is_taken(IRBuilder<> &at, Value *address) {
    Value *line = at.CreateLShr(at.CreatePtrToInt(address, at.getInt64Ty()), COMEM_LINE_SHIFT);
    Value *table = at.CreateIntToPtr(at.getInt64(COMEM_TABLE), at.getPtrTy());
    Value *entry = at.CreateAlignedLoad(at.getInt16Ty(), at.CreateGEP(at.getInt16Ty(), table, line), Align(2));
    return at.CreateICmpNE(entry, at.getInt16(0));
}

// Raises the hazard for `span` bytes from `first` on and checks their entries; goes on to `stores` if all are 0. No
// entry of another line is read: its grain may not be open.
void Stores::raise(IRBuilder<> &at, Value *first, int64_t span, Align align, BasicBlock *stores, BasicBlock *cold) {
    counts.hazards++;
    bool one_line = span <= int64_t(align.value()) && span <= int64_t(COMEM_LINE_BYTES);
    Value *word = at.CreatePtrToInt(first, at.getInt64Ty());
    if (!one_line) {
        uint64_t lines = (span + COMEM_LINE_BYTES - 2) / COMEM_LINE_BYTES + 1;
        word = at.CreateOr(word, at.getInt64(lines << COMEM_HAZARD_LINES_SHIFT));
    }
    fence(at);
    at.CreateAlignedStore(Options::get().no_hazards ? at.getInt64(0) : word, hazard, Align(8));
    fence(at);
    MDNode *unlikely = MDBuilder(f.getContext()).createBranchWeights(1, 1 << 20);
    for (int64_t offset = 0, last = one_line ? 0 : span - 1;;
         offset = std::min<int64_t>(offset + COMEM_LINE_BYTES, last)) {
        Value *taken =
            entry_is_taken(at, offset ? at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), first, offset) : first);
        auto *next = BasicBlock::Create(f.getContext(), "comem.own", &f, stores);
        at.CreateCondBr(taken, cold, next, unlikely);
        at.SetInsertPoint(next);
        if (offset == last) {
            break;
        }
    }
    if (Options::get().windows) {
        runtime.window(at);
    }
    at.CreateBr(stores);
}

void Stores::lower(IRBuilder<> &at) {
    fence(at);
    at.CreateAlignedStore(at.getInt64(0), hazard, Align(8));
}

void Stores::emit(Group &group) {
    StoreInst *last = group.stores.back();
    unsigned lowest = 0;
    int64_t high = 0;
    for (unsigned i = 0; i < group.stores.size(); i++) {
        group.stores[i]->moveBefore(last == group.stores[i] ? last->getNextNode() : last);
        lowest = group.offsets[i] < group.offsets[lowest] ? i : lowest;
        high = std::max(high, end_of(*group.stores[i], group.offsets[i]));
    }
    Value *first = group.stores[lowest]->getPointerOperand();
    int64_t span = high - group.offsets[lowest];
    Align align = group.stores[lowest]->getAlign();

    BasicBlock *before = last->getParent();
    BasicBlock *stores = before->splitBasicBlock(group.stores.front(), "comem.store");
    BasicBlock *rest = stores->splitBasicBlock(last->getNextNode(), "comem.stored");
    auto *cold = BasicBlock::Create(f.getContext(), "comem.miss", &f);
    before->getTerminator()->eraseFromParent();
    IRBuilder<> at(before);
    at.SetCurrentDebugLocation(group.stores.front()->getDebugLoc());
    raise(at, first, span, align, stores, cold);
    if (!group.another_follows) {
        at.SetInsertPoint(stores->getTerminator());
        lower(at);
    }

    at.SetInsertPoint(cold);
    lower(at);
    for (StoreInst *store : group.stores) {
        at.SetCurrentDebugLocation(store->getDebugLoc());
        runtime.store(at, store->getPointerOperand(), store->getValueOperand());
        if (store->getOrdering() == AtomicOrdering::SequentiallyConsistent) {
            at.CreateFence(AtomicOrdering::SequentiallyConsistent);
        }
    }
    at.CreateBr(rest);
}

void Stores::emit_atomic(Instruction &atomic) {
    auto *exchange = dyn_cast<AtomicCmpXchgInst>(&atomic);
    auto *rmw = dyn_cast<AtomicRMWInst>(&atomic);
    Value *address = atomic.getOperand(0);
    Value *operand = exchange ? exchange->getNewValOperand() : rmw->getValOperand();
    Type *type = operand->getType();
    BasicBlock *before = atomic.getParent();
    BasicBlock *hot = before->splitBasicBlock(&atomic, "comem.atomic");
    BasicBlock *rest = hot->splitBasicBlock(atomic.getNextNode(), "comem.done");
    auto *cold = BasicBlock::Create(f.getContext(), "comem.miss", &f);
    before->getTerminator()->eraseFromParent();
    PHINode *result = PHINode::Create(atomic.getType(), 2, "", rest->begin());
    atomic.replaceAllUsesWith(result);

    IRBuilder<> at(before);
    at.SetCurrentDebugLocation(atomic.getDebugLoc());
    raise(at, address, layout.getTypeStoreSize(type), Align(COMEM_LINE_BYTES), hot, cold);
    at.SetInsertPoint(hot->getTerminator());
    lower(at);
    result->addIncoming(&atomic, hot);

    at.SetInsertPoint(cold);
    lower(at);
    Value *old = runtime.atomic(at, address, operand, exchange ? exchange->getCompareOperand() : nullptr,
                                exchange ? COMEM_ATOMIC_COMPARE_AND_SWAP : unsigned(rmw->getOperation()));
    if (exchange) {
        Value *compared = old, *expected = exchange->getCompareOperand();
        Value *pair = at.CreateInsertValue(PoisonValue::get(atomic.getType()), old, 0);
        old = at.CreateInsertValue(pair, at.CreateICmpEQ(compared, expected), 1);
    }
    result->addIncoming(old, cold);
    at.CreateBr(rest);
}

// Loads the thread's hazard once, where it is needed by all that use it, but outside of loops.
void Stores::place_hazard() {
    DominatorTree tree(f);
    LoopInfo loops(tree);
    BasicBlock *block = nullptr;
    for (User *user : hazard->users()) {
        BasicBlock *b = cast<Instruction>(user)->getParent();
        block = block ? tree.findNearestCommonDominator(block, b) : b;
    }
    if (!block) {
        hazard->eraseFromParent();
        return;
    }
    Instruction *at = nullptr;
    for (Loop *loop = loops.getLoopFor(block); loop; loop = loops.getLoopFor(block)) {
        block = tree.getNode(loop->getOutermostLoop()->getHeader())->getIDom()->getBlock();
    }
    for (Instruction &instruction : *block) {
        if (is_contained(instruction.operand_values(), hazard)) {
            at = &instruction;
            break;
        }
    }
    IRBuilder<> builder(at ? at : block->getTerminator());
    Value *variable = builder.CreateThreadLocalAddress(runtime.hazard());
    Value *known = builder.CreateAlignedLoad(builder.getPtrTy(), variable, Align(8), "comem.hazard");
    Instruction *split = &*builder.GetInsertPoint();
    Value *missing = builder.CreateIsNull(known);
    MDNode *unlikely = MDBuilder(f.getContext()).createBranchWeights(1, 1 << 20);
    Instruction *cold = SplitBlockAndInsertIfThen(missing, split, false, unlikely);
    cold->getParent()->moveAfter(&f.back());
    builder.SetInsertPoint(cold);
    Value *entered = runtime.enter(builder);
    builder.CreateAlignedStore(entered, variable, Align(8));
    PHINode *phi = PHINode::Create(builder.getPtrTy(), 2, "comem.hazard", split->getParent()->begin());
    phi->addIncoming(known, cast<Instruction>(missing)->getParent());
    phi->addIncoming(entered, cold->getParent());
    hazard->replaceAllUsesWith(phi);
    hazard->eraseFromParent();
}

} // namespace

void check_stores(Function &function, FunctionAnalysisManager &analyses, StripMap &strips, Private &priv,
                  Runtime &runtime, Counts &counts, long &leave_out) {
    Stores(function, analyses, strips, priv, runtime, counts, leave_out).run();
}

} // namespace comem
