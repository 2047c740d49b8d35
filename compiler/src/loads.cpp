// Checks of loads by their value: a load that returns COMEM_MAGIC may have read an invalid unit, and is made again by a
// call.
//
// The test comes after the load, in program order and at once: MAGIC can arrive at any time, so a test of the same
// address before says nothing. Loads of a stretch without side effects share one test. The stretch is put into levels
// for that: a load whose address needs another checked load is one level further down. Each level is tested before
// anything uses it.
#include "strips.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include <functional>

using namespace llvm;

namespace comem {

// Loads that share one test: more need more registers than there are.
static const unsigned GROUP_MAX = 8;
// How far behind a group results are looked for, and how many instructions its cold block may make again.
static const unsigned TAIL_MAX = 64, COMPUTED_MAX = 24;

namespace {

struct Group {
    SmallVector<LoadInst *, GROUP_MAX> loads;
    const Strip *strip; // the one around them, or null
};

// Results of floating-point operations that are NaN if a load of a group is: they are tested in the loads' place.
struct Results {
    SmallVector<Instruction *, 4> roots;
    SmallPtrSet<const LoadInst *, GROUP_MAX> covered; // the loads that they stand for
    SmallVector<Instruction *, 16> computed;          // from the loads to the roots, in order
};

class Loads {
  public:
    Loads(Function &f, StripMap &strips, Private &priv, Runtime &runtime, Counts &counts, long &leave_out)
        : f(f), strips(strips), priv(priv), runtime(runtime), counts(counts), leave_out(leave_out),
          layout(f.getParent()->getDataLayout()),
          integers(f.hasFnAttribute(Attribute::StrictFP) || f.getFnAttribute("no-nans-fp-math").getValueAsBool()) {}

    void run(ArrayRef<LoadInst *> loads);

  private:
    bool classify(LoadInst &load);
    void block(BasicBlock &block);
    void stretch(ArrayRef<Instruction *> instructions);
    void forget_promises(LoadInst &load);
    void emit(const Group &group);
    void by_call(LoadInst &load, const Strip *strip);
    using Test = std::function<Value *(IRBuilder<> &)>;
    SmallVector<Test, GROUP_MAX> tests(const Group &group, const Results &results);
    bool by_float(const LoadInst &load) const;
    Results results(const Group &group);
    Value *one_condition(IRBuilder<> &at, LoadInst &load, unsigned offset);
    bool in_vector_registers(Type *type) const;

    Function &f;
    StripMap &strips;
    Private &priv;
    Runtime &runtime;
    Counts &counts;
    long &leave_out;
    const DataLayout &layout;
    bool integers; // floating-point comparisons may be folded, or may raise flags that the program reads
    SmallPtrSet<Instruction *, 32> checked;
    SmallVector<Group, 16> groups;
    SmallVector<std::pair<LoadInst *, const Strip *>, 4> calls;
};

// Whether the value is in vector registers, and its words of 4 bytes are lanes.
//
// An integer of more than 8 bytes is in general registers. It must not be tested as a vector: LLVM would load it a
// second time for that, and the test would say nothing about what the program gets.
bool Loads::in_vector_registers(Type *type) const {
    auto *vector = dyn_cast<FixedVectorType>(type);
    Type *element = vector ? vector->getElementType() : type;
    uint64_t bits = layout.getTypeSizeInBits(type), element_bits = layout.getTypeSizeInBits(element);
    bool is_lane = (element->isIntegerTy() || element->isFloatingPointTy()) && isPowerOf2_64(element_bits) &&
                   element_bits >= 8 && element_bits <= 64;
    return ((vector && is_lane) || type->isFP128Ty()) && bits % 32 == 0 && bits <= 512 &&
           bits == layout.getTypeStoreSizeInBits(type);
}

// Whether it is an integer of several words of 8 bytes.
static bool is_wide_integer(Type *type) {
    return type->isIntegerTy() && type->getIntegerBitWidth() > 64 && type->getIntegerBitWidth() <= 512 &&
           type->getIntegerBitWidth() % 64 == 0;
}

// Whether the load has a test by its value. Else it becomes a call.
bool Loads::classify(LoadInst &load) {
    Type *type = load.getType();
    uint64_t bytes = layout.getTypeStoreSize(type);
    if (type->isPointerTy()) {
        return true;
    }
    bool scalar = (type->isIntegerTy() || type->isFloatingPointTy()) && layout.getTypeSizeInBits(type) == 8 * bytes;
    if (scalar && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
        return true;
    }
    return (in_vector_registers(type) || is_wide_integer(type)) && !load.isAtomic();
}

// Earlier passes know that a bool is 0 or 1 and a pointer is not null. An invalid unit does not.
void Loads::forget_promises(LoadInst &load) {
    for (unsigned kind :
         {LLVMContext::MD_range, LLVMContext::MD_invariant_load, LLVMContext::MD_invariant_group,
          LLVMContext::MD_nonnull, LLVMContext::MD_noundef, LLVMContext::MD_dereferenceable,
          LLVMContext::MD_dereferenceable_or_null, LLVMContext::MD_align, LLVMContext::MD_nontemporal}) {
        load.setMetadata(kind, nullptr);
    }
}

void Loads::run(ArrayRef<LoadInst *> loads) {
    for (LoadInst *load : loads) {
        counts.loads++;
        if (priv.is(load->getPointerOperand()) || load->getPointerAddressSpace() != 0) {
            if (Options::get().verify && !Private::is_plainly_alloca(load->getPointerOperand()) &&
                load->getPointerAddressSpace() == 0) {
                IRBuilder<> at(load);
                runtime.verify(at, load->getPointerOperand(), layout.getTypeStoreSize(load->getType()),
                               load->getDebugLoc());
            }
            continue;
        }
        counts.loads_checked++;
        if (strips.is_own(*load)) {
            continue;
        }
        forget_promises(*load);
        if (classify(*load)) {
            checked.insert(load);
        } else {
            calls.push_back({load, strips.of(load->getParent())});
        }
    }
    for (BasicBlock &b : f) {
        block(b);
    }
    for (auto [load, strip] : calls) {
        by_call(*load, strip);
    }
    for (Group &group : groups) {
        if (leave_out != 0 && --leave_out == 0) {
            continue;
        }
        emit(group);
    }
}

void Loads::by_call(LoadInst &load, const Strip *strip) {
    IRBuilder<> at(&load);
    if (strip) {
        strip->lower(at);
    }
    Value *value = runtime.load(at, load.getPointerOperand(), load.getType());
    if (strip) {
        BasicBlock *before = load.getParent(), *rest = before->splitBasicBlock(&load);
        before->getTerminator()->eraseFromParent();
        at.SetInsertPoint(before);
        strip->raise_again(at, runtime, rest);
    }
    load.replaceAllUsesWith(value);
    load.eraseFromParent();
}

// Finds the stretches of a block: instructions without side effects that may change places.
void Loads::block(BasicBlock &block) {
    SmallVector<Instruction *, 64> instructions;
    unsigned loads = 0;
    auto end = [&] {
        stretch(instructions);
        instructions.clear();
        loads = 0;
    };
    SmallVector<Instruction *, 64> all; // stretches change the order
    for (Instruction &instruction : block) {
        all.push_back(&instruction);
    }
    for (Instruction *at : all) {
        Instruction &instruction = *at;
        bool is_checked = checked.count(&instruction);
        auto *load = dyn_cast<LoadInst>(&instruction);
        if (load && is_checked && load->isSimple()) {
            instructions.push_back(load);
            if (++loads == GROUP_MAX) {
                end();
            }
        } else if (is_checked) { // volatile or atomic: stays where it is
            end();
            groups.push_back({{load}, strips.of(&block)});
        } else if (isa<PHINode>(instruction) || instruction.isTerminator() || instruction.isEHPad() ||
                   isa<AllocaInst>(instruction) || instruction.mayHaveSideEffects() ||
                   (isa<CallBase>(instruction) && instruction.mayReadFromMemory()) || (load && !load->isSimple()) ||
                   isa<LandingPadInst>(instruction)) {
            end();
        } else {
            instructions.push_back(&instruction);
        }
    }
}

void Loads::stretch(ArrayRef<Instruction *> instructions) {
    MapVector<Instruction *, unsigned> level;
    unsigned levels = 0;
    bool any = false;
    for (Instruction *i : instructions) {
        unsigned own = 0;
        for (Use &use : i->operands()) {
            if (auto *operand = dyn_cast<Instruction>(use); operand && level.count(operand)) {
                own = std::max(own, level[operand] + (checked.count(operand) ? 1 : 0));
            }
        }
        level[i] = own;
        if (checked.count(i)) {
            levels = std::max(levels, own + 1);
            any = true;
        }
    }
    if (!any) {
        return;
    }
    SmallPtrSet<User *, 32> needed; // for the address of a load
    for (Instruction *i : reverse(instructions)) {
        if (checked.count(i) || needed.count(i)) {
            for (Use &use : i->operands()) {
                if (auto *user = dyn_cast<Instruction>(use)) {
                    needed.insert(user);
                }
            }
        }
    }
    // What the loads of a level need goes before them; everything else goes behind the last test, or at least behind
    // the tests of what it uses.
    const unsigned LAST = levels;
    DenseMap<Instruction *, unsigned> place;
    for (Instruction *i : instructions) {
        place[i] = checked.count(i) ? level[i] : LAST;
        // A floating-point value is seldom needed for an address: it can wait for the last group.
        if (checked.count(i) && by_float(*cast<LoadInst>(i)) &&
            none_of(i->users(), [&](User *user) { return needed.count(user); })) {
            place[i] = levels - 1;
        }
    }
    for (Instruction *i : reverse(instructions)) {
        if (place[i] == LAST) {
            continue;
        }
        for (Use &use : i->operands()) {
            if (auto *operand = dyn_cast<Instruction>(use);
                operand && place.count(operand) && !checked.count(operand)) {
                place[operand] = std::min(place[operand], place[i]);
            }
        }
    }
    Instruction *behind = instructions.back()->getNextNode();
    SmallVector<Group, 4> formed(levels, Group{{}, strips.of(behind->getParent())});
    for (unsigned l = 0; l <= LAST; l++) {
        for (Instruction *i : instructions) {
            if (place[i] == l && !checked.count(i)) {
                i->moveBefore(behind);
            }
        }
        for (Instruction *i : instructions) {
            if (place[i] == l && checked.count(i)) {
                i->moveBefore(behind);
                formed[l].loads.push_back(cast<LoadInst>(i));
            }
        }
    }
    for (Group &group : formed) {
        if (!group.loads.empty()) {
            groups.push_back(group);
        }
    }
}

// Whether a load may have read an invalid unit: by all its words if it is in vector registers, else by the word that
// begins `offset` bytes into it.
Value *Loads::one_condition(IRBuilder<> &at, LoadInst &load, unsigned offset) {
    Type *type = load.getType();
    uint64_t bytes = layout.getTypeStoreSize(type);
    if (in_vector_registers(type)) {
        auto *words = FixedVectorType::get(at.getInt32Ty(), bytes / 4);
        Value *lanes =
            at.CreateICmpEQ(at.CreateBitCast(&load, words), at.CreateVectorSplat(bytes / 4, at.getInt32(COMEM_MAGIC)));
        return at.CreateICmpNE(at.CreateBitCast(lanes, at.getIntNTy(bytes / 4)), at.getIntN(bytes / 4, 0));
    }
    Type *integer = at.getIntNTy(8 * bytes);
    Value *word = type->isPointerTy() ? at.CreatePtrToInt(&load, integer) : at.CreateBitCast(&load, integer);
    if (offset) {
        word = at.CreateLShr(word, 8 * offset);
    }
    if (bytes == 1) { // 0xfd or 0xff; 0xfe costs a second look only
        return at.CreateICmpUGE(word, at.getInt8(COMEM_MAGIC & 0xff));
    }
    if (bytes == 2) {
        return at.CreateICmpEQ(word, at.getInt16(COMEM_MAGIC & 0xffff));
    }
    return at.CreateICmpEQ(at.CreateTrunc(word, at.getInt32Ty()), at.getInt32(COMEM_MAGIC));
}

// Whether a load is tested for NaN, which MAGIC is.
bool Loads::by_float(const LoadInst &load) const {
    Type *type = load.getType(), *element = type->getScalarType();
    if (element->isDoubleTy() && load.getAlign() < Align(8)) { // a half of it may be MAGIC
        return false;
    }
    return !integers && (element->isFloatTy() || element->isDoubleTy());
}

// Whether the result is NaN if any operand is.
static bool hands_on_nan(const Instruction &i) {
    if (auto *op = dyn_cast<FPMathOperator>(&i); !op || op->hasNoNaNs()) {
        return false;
    }
    switch (i.getOpcode()) {
    case Instruction::FAdd:
    case Instruction::FSub:
    case Instruction::FMul:
    case Instruction::FDiv:
    case Instruction::FNeg: return true;
    case Instruction::Call: {
        auto id = cast<CallInst>(i).getIntrinsicID();
        return id == Intrinsic::fma || id == Intrinsic::fmuladd || id == Intrinsic::sqrt || id == Intrinsic::fabs;
    }
    default: return false;
    }
}

Results Loads::results(const Group &group) {
    Results out;
    DenseMap<const Value *, unsigned> reached; // bits: the loads whose NaN comes out here
    for (unsigned i = 0; i < group.loads.size(); i++) {
        if (by_float(*group.loads[i])) {
            reached[group.loads[i]] = 1u << i;
        }
    }
    if (reached.size() < 2) {
        return out;
    }
    SmallVector<Instruction *, 32> tail;
    for (Instruction *i = group.loads.back()->getNextNode(); i && tail.size() < TAIL_MAX; i = i->getNextNode()) {
        if (i->isTerminator() || i->mayReadOrWriteMemory() || i->mayHaveSideEffects() || isa<AllocaInst>(i)) {
            break;
        }
        tail.push_back(i);
        unsigned bits = 0;
        for (Use &use : i->operands()) {
            bits |= reached.lookup(use);
        }
        if (bits && hands_on_nan(*i)) {
            reached[i] = bits;
        }
    }
    SmallPtrSet<Instruction *, 32> in_tail(tail.begin(), tail.end()), computed;
    unsigned covered = 0;
    for (;;) {
        Instruction *best = nullptr;
        int gain = 1; // a result that stands for one load saves nothing
        for (Instruction *i : tail) {
            if (int more = popcount(reached.lookup(i) & ~covered); more > gain) {
                best = i, gain = more;
            }
        }
        if (!best) {
            break;
        }
        covered |= reached[best];
        SmallVector<Instruction *, 16> left = {best};
        SmallPtrSet<Instruction *, 32> with = computed;
        bool fine = true;
        while (!left.empty()) {
            Instruction *i = left.pop_back_val();
            if (!with.insert(i).second) {
                continue;
            }
            // LLVM may load a vector again that is made of loads.
            bool is_loaded_again = isa<InsertElementInst>(i) && isa<LoadInst>(i->getOperand(1));
            fine &= isSafeToSpeculativelyExecute(i) && !is_loaded_again && with.size() <= COMPUTED_MAX;
            for (Use &use : i->operands()) {
                if (auto *operand = dyn_cast<Instruction>(use); operand && in_tail.count(operand)) {
                    left.push_back(operand);
                }
            }
        }
        if (!fine) {
            continue; // its loads count as covered here only, so that the search ends
        }
        computed = with;
        out.roots.push_back(best);
        for (unsigned i = 0; i < group.loads.size(); i++) {
            if (reached[best] >> i & 1) {
                out.covered.insert(group.loads[i]);
            }
        }
    }
    for (Instruction *i : tail) {
        if (computed.count(i)) {
            out.computed.push_back(i);
        }
    }
    return out;
}

// What tests a group: each makes one condition where it is asked to.
SmallVector<Loads::Test, GROUP_MAX> Loads::tests(const Group &group, const Results &results) {
    SmallVector<Test, GROUP_MAX> out;
    MapVector<Type *, Value *> single; // a floating-point value that waits for another of its type
    MapVector<Type *, SmallVector<std::pair<Value *, Value *>, 4>> vectors; // all of a type share one test
    auto unordered = [&](Value *a, Value *b) {
        if (a->getType()->isVectorTy()) {
            vectors[a->getType()].push_back({a, b});
        } else {
            out.push_back([a, b](IRBuilder<> &at) { return at.CreateFCmpUNO(a, b); });
        }
    };
    auto pair = [&](Value *value) {
        if (Value *&other = single[value->getType()]) {
            unordered(other, value);
            other = nullptr;
        } else {
            other = value;
        }
    };
    for (LoadInst *load : group.loads) {
        Type *type = load->getType();
        uint64_t bytes = layout.getTypeStoreSize(type), align = load->getAlign().value();
        bool whole = in_vector_registers(type) || bytes < 8, halves = !whole && align == 4;
        // A value shows whole words only if it is aligned to them.
        uint64_t word = in_vector_registers(type) || halves ? 4 : std::min<uint64_t>(8, bytes);
        if (align < word) {
            uint64_t mask = word - 1;
            out.push_back([load, mask](IRBuilder<> &at) -> Value * {
                Value *low = at.CreateAnd(at.CreatePtrToInt(load->getPointerOperand(), at.getInt64Ty()), mask);
                return at.CreateICmpNE(low, at.getInt64(0));
            });
        }
        if (by_float(*load)) {
            if (!results.covered.count(load)) {
                pair(load);
            }
            continue;
        }
        for (unsigned offset = 0; offset < (whole ? 1 : bytes); offset += halves ? 4 : 8) {
            out.push_back([this, load, offset](IRBuilder<> &at) { return one_condition(at, *load, offset); });
        }
    }
    for (Instruction *root : results.roots) {
        pair(root);
    }
    for (auto &[type, left] : single) {
        if (left) {
            unordered(left, left);
        }
    }
    for (auto &[type, pairs] : vectors) {
        out.push_back([pairs = pairs](IRBuilder<> &at) {
            auto *type = cast<FixedVectorType>(pairs.front().first->getType());
            unsigned n = type->getNumElements();
            auto *masks = FixedVectorType::get(at.getIntNTy(type->getScalarSizeInBits()), n);
            Value *all = nullptr;
            for (auto [a, b] : pairs) {
                Value *mask = at.CreateSExt(at.CreateFCmpUNO(a, b), masks);
                all = all ? at.CreateOr(all, mask) : mask;
            }
            Value *lanes = at.CreateICmpSLT(all, Constant::getNullValue(masks));
            return at.CreateICmpNE(at.CreateBitCast(lanes, at.getIntNTy(n)), at.getIntN(n, 0));
        });
    }
    return out;
}

// The test of a group, and a cold block that makes all its loads again, in order. Each condition is a branch of its
// own: a comparison and a jump are one operation of the processor.
void Loads::emit(const Group &group) {
    counts.tests++;
    Results results = this->results(group);
    Instruction *last = group.loads.back();
    SmallVector<Instruction *, 32> made(group.loads.begin(), group.loads.end());
    for (Instruction *i : results.computed) {
        i->moveAfter(last);
        last = i;
        made.push_back(i);
    }
    BasicBlock *first = last->getParent();
    BasicBlock *rest = first->splitBasicBlock(last->getNextNode(), "comem.checked");
    first->getTerminator()->eraseFromParent();
    auto *cold = BasicBlock::Create(f.getContext(), "comem.load", &f);
    // What is used behind the test comes from the first time, or from the cold block.
    SmallPtrSet<const User *, 32> before(made.begin(), made.end());
    SmallVector<std::pair<Instruction *, PHINode *>, 16> values;
    for (Instruction *i : made) {
        if (all_of(i->users(), [&](const User *user) { return before.count(user); })) {
            continue;
        }
        values.push_back({i, PHINode::Create(i->getType(), 2, "", rest->getFirstNonPHIIt())});
        i->replaceUsesWithIf(values.back().second, [&](Use &use) { return !before.count(use.getUser()); });
        strips.replace(i, values.back().second);
    }
    IRBuilder<> at(first);
    at.SetCurrentDebugLocation(group.loads.front()->getDebugLoc());
    MDNode *unlikely = MDBuilder(f.getContext()).createBranchWeights(1, 1 << 20);
    SmallVector<Test, GROUP_MAX> all = tests(group, results);
    for (unsigned i = 0; i < all.size(); i++) {
        Value *test = all[i](at);
        BasicBlock *next = i + 1 == all.size() ? rest : BasicBlock::Create(f.getContext(), "comem.test", &f, rest);
        at.CreateCondBr(test, cold, next, unlikely);
        if (next != rest) {
            at.SetInsertPoint(next);
        }
    }
    BasicBlock *last_test = at.GetInsertBlock();
    at.SetInsertPoint(cold);
    if (group.strip) { // no call while the hazard is up
        group.strip->lower(at);
    }
    DenseMap<Value *, Value *> again;
    for (LoadInst *load : group.loads) {
        at.SetCurrentDebugLocation(load->getDebugLoc());
        again[load] = runtime.load(at, load->getPointerOperand(), load->getType());
    }
    for (Instruction *i : results.computed) {
        Instruction *copy = i->clone();
        at.Insert(copy);
        for (Use &use : copy->operands()) {
            if (Value *other = again.lookup(use)) {
                use.set(other);
            }
        }
        again[i] = copy;
    }
    if (group.strip) {
        auto *back = BasicBlock::Create(f.getContext(), "comem.load", &f);
        group.strip->raise_again(at, runtime, back);
        at.SetInsertPoint(back);
    }
    for (auto [value, phi] : values) {
        phi->addIncoming(value, last_test);
        phi->addIncoming(again[value], at.GetInsertBlock());
    }
    at.CreateBr(rest);
}

} // namespace

void check_loads(Function &function, ArrayRef<LoadInst *> loads, StripMap &strips, Private &priv, Runtime &runtime,
                 Counts &counts, long &leave_out) {
    Loads(function, strips, priv, runtime, counts, leave_out).run(loads);
}

} // namespace comem
