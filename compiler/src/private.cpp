// Which pointers lead to private memory for certain: the stack, globals, thread-local variables and what malloc has
// just returned. Nothing of a thread's stack is in lines memory, whether its address escapes or not.
#include "inline.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace comem {

// Values that a walk looks at before it gives up.
static const unsigned WALK_MAX = 64;

bool Private::is(const Value *pointer) {
    SmallPtrSet<const Value *, 16> seen;
    return walk(pointer, seen);
}

bool Private::is_plainly_alloca(const Value *pointer) { return isa<AllocaInst>(pointer->stripInBoundsOffsets()); }

bool Private::walk(const Value *value, SmallPtrSetImpl<const Value *> &seen) {
    if (!seen.insert(value).second) {
        return true; // a cycle of phis: its other values decide
    }
    if (seen.size() > WALK_MAX) {
        return false;
    }
    if (isa<AllocaInst>(value) || isa<GlobalValue>(value) || isa<ConstantPointerNull>(value) ||
        isa<UndefValue>(value)) {
        return true;
    }
    if (auto *argument = dyn_cast<Argument>(value)) {
        return argument->hasByValAttr() || private_arguments.count(argument);
    }
    if (auto *gep = dyn_cast<GEPOperator>(value)) {
        return walk(gep->getPointerOperand(), seen);
    }
    if (auto *op = dyn_cast<Operator>(value)) {
        switch (op->getOpcode()) {
        case Instruction::BitCast:
        case Instruction::AddrSpaceCast:
        case Instruction::Freeze: return walk(op->getOperand(0), seen);
        case Instruction::Select: return walk(op->getOperand(1), seen) && walk(op->getOperand(2), seen);
        case Instruction::PHI:
            return all_of(cast<PHINode>(op)->incoming_values(), [&](const Use &use) { return walk(use, seen); });
        }
    }
    if (auto *call = dyn_cast<CallBase>(value)) {
        return call_result(*call, seen);
    }
    return false;
}

bool Private::call_result(const CallBase &call, SmallPtrSetImpl<const Value *> &seen) {
    if (auto *intrinsic = dyn_cast<IntrinsicInst>(&call)) {
        switch (intrinsic->getIntrinsicID()) {
        case Intrinsic::threadlocal_address:
        case Intrinsic::stacksave:
        case Intrinsic::frameaddress: return true;
        case Intrinsic::launder_invariant_group:
        case Intrinsic::strip_invariant_group:
        case Intrinsic::ptrmask:
        case Intrinsic::ssa_copy: return walk(call.getArgOperand(0), seen);
        default: return false;
        }
    }
    const Function *callee = call.getCalledFunction();
    if (!callee || !callee->isDeclaration()) {
        return false;
    }
    // By name: an allocator of the program that says `malloc` of itself may hand out shared memory.
    return StringSwitch<bool>(callee->getName())
        .Cases("malloc", "calloc", "realloc", "aligned_alloc", "memalign", "strdup", "strndup", true)
        .Cases("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", true)
        .Cases("_ZnwmSt11align_val_t", "_ZnamSt11align_val_t", "__cxa_allocate_exception", true)
        .Cases("__errno_location", "__ctype_b_loc", "__ctype_tolower_loc", "__ctype_toupper_loc", true)
        .Default(false);
}

// Arguments of internal functions that are private in every call. All are taken for private first; a call that does not
// keep the promise takes it back, until nothing changes.
void Private::arguments(Module &module) {
    for (Function &f : module) {
        if (f.isDeclaration() || !f.hasLocalLinkage() || f.hasAddressTaken()) {
            continue;
        }
        for (Argument &argument : f.args()) {
            if (argument.getType()->isPointerTy()) {
                private_arguments.insert(&argument);
            }
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        SmallVector<const Argument *, 32> broken;
        for (const Argument *argument : private_arguments) {
            for (const User *user : argument->getParent()->users()) {
                auto *call = dyn_cast<CallBase>(user);
                if (!call || call->getCalledFunction() != argument->getParent() ||
                    !is(call->getArgOperand(argument->getArgNo()))) {
                    broken.push_back(argument);
                    break;
                }
            }
        }
        for (const Argument *argument : broken) {
            changed |= private_arguments.erase(argument);
        }
    }
}

} // namespace comem
