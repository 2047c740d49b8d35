// Functions outside of the module that get pointers to memory that may be shared. Which of them have checks is known
// only when the program is linked, so the names go into the section of the object file, and `comem-cc --inline` warns
// of those in libraries.
#include "inline.h"
#include "llvm/IR/InstIterator.h"
#include <set>

using namespace llvm;

namespace comem {

static bool is_harmless(StringRef name) {
#define COMEM_HARMLESS(known)                                                                                          \
    if (name == #known) {                                                                                              \
        return true;                                                                                                   \
    }
#define COMEM_HARMLESS_PREFIX(prefix)                                                                                  \
    if (name.starts_with(#prefix)) {                                                                                   \
        return true;                                                                                                   \
    }
#include "wrapped.def"
    return false;
}

static bool gets_shared(CallBase &call, Private &priv) {
    for (unsigned i = 0; i < call.arg_size(); i++) {
        Value *argument = call.getArgOperand(i);
        if (argument->getType()->isPointerTy() && !call.doesNotAccessMemory(i) && !priv.is(argument)) {
            return true;
        }
    }
    return false;
}

std::string foreign_calls(Module &module, Private &priv) {
    std::set<std::string> names;
    for (Function &f : module) {
        for (Instruction &instruction : instructions(f)) {
            auto *call = dyn_cast<CallBase>(&instruction);
            Function *callee = call ? call->getCalledFunction() : nullptr;
            if (callee && callee->isDeclaration() && !callee->isIntrinsic() && !call->doesNotAccessMemory() &&
                !is_harmless(callee->getName()) && gets_shared(*call, priv)) {
                names.insert(callee->getName().str());
            }
        }
    }
    std::string out;
    for (const std::string &name : names) {
        out += (out.empty() ? "" : ",") + name;
    }
    return out;
}

} // namespace comem
