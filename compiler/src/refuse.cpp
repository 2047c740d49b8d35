// What cannot be checked ends the compilation with an error: a check that is missing silently would be a wrong result
// later.
#include "inline.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace comem {

void refuse(const Instruction &at, const Twine &what) {
    std::string text = ("comem --inline: " + what).str();
    if (auto *call = dyn_cast<CallBase>(&at); call && call->isInlineAsm() && !at.getDebugLoc()) {
        if (call->getMetadata("srcloc")) { // clang knows the line of an asm even without locations
            at.getContext().diagnose(DiagnosticInfoInlineAsm(at, text, DS_Error));
            return;
        }
    }
    refuse(*at.getFunction(), at.getDebugLoc(), what);
}

void refuse(const Function &in, const DebugLoc &at, const Twine &what) {
    // Without a location, clang names the line on which the function begins.
    in.getContext().diagnose(DiagnosticInfoUnsupported(in, "comem --inline: " + what, at, DS_Error));
}

namespace {
class ModuleError : public DiagnosticInfo {
  public:
    explicit ModuleError(std::string text)
        : DiagnosticInfo(getNextAvailablePluginDiagnosticKind(), DS_Error), text(std::move(text)) {}
    void print(DiagnosticPrinter &printer) const override { printer << text; }

  private:
    std::string text;
};
} // namespace

void refuse(Module &module, const Twine &what) {
    module.getContext().diagnose(ModuleError((module.getSourceFileName() + ": comem --inline: " + what).str()));
}

// Instructions that touch no memory if no operand names any.
static bool is_harmless_mnemonic(StringRef word) {
    return StringSwitch<bool>(word)
        .Cases("pause", "nop", "rep", "mfence", "lfence", "sfence", "cpuid", "rdtsc", "rdtscp", true)
        .Cases("bswap", "bswapl", "bswapq", "bsf", "bsfl", "bsfq", "bsr", "bsrl", "bsrq", true)
        .Cases("popcnt", "popcntl", "popcntq", "lzcnt", "tzcnt", "xgetbv", "rdrand", "rdseed", true)
        .Cases("mov", "movl", "movq", "xor", "xorl", "xorq", "add", "addl", "addq", "adc", true)
        .Cases("adcl", "adcq", "sub", "subl", "subq", "sbb", "sbbl", "sbbq", "mul", "mulq", true)
        .Cases("imul", "imull", "imulq", "div", "divl", "divq", "rol", "roll", "rolq", "ror", true)
        .Cases("rorl", "rorq", "shl", "shll", "shlq", "shr", "shrl", "shrq", "seto", "setc", true)
        .Default(false);
}

static bool is_harmless(const CallBase &call) {
    auto &assembly = *cast<InlineAsm>(call.getCalledOperand());
    StringRef text = StringRef(assembly.getAsmString()).trim();
    if (text.empty()) {
        return true; // a barrier of the compiler
    }
    if (isa<CallBrInst>(call) || text.find_first_of("([") != StringRef::npos) {
        return false;
    }
    for (auto &constraint : assembly.ParseConstraints()) {
        if (constraint.isIndirect || is_contained(constraint.Codes, "m") || is_contained(constraint.Codes, "o")) {
            return false;
        }
    }
    if (any_of(call.args(), [](const Use &use) { return use->getType()->isPointerTy(); })) {
        return false;
    }
    SmallVector<StringRef, 8> lines;
    SplitString(text, lines, "\n;");
    return all_of(lines, [](StringRef line) {
        line = line.trim();
        StringRef word = line.take_until([](char c) { return isSpace(c); });
        return line.empty() || is_harmless_mnemonic(word);
    });
}

// Intrinsics that touch memory but need no check, or are lowered.
static bool is_known(Intrinsic::ID id) {
    switch (id) {
    case Intrinsic::memcpy:
    case Intrinsic::memcpy_inline:
    case Intrinsic::memmove:
    case Intrinsic::memset:
    case Intrinsic::memset_inline:
    case Intrinsic::masked_load:
    case Intrinsic::masked_store:
    case Intrinsic::masked_gather:
    case Intrinsic::masked_scatter:
    case Intrinsic::vastart:
    case Intrinsic::vacopy:
    case Intrinsic::vaend:
    case Intrinsic::prefetch:
    case Intrinsic::lifetime_start:
    case Intrinsic::lifetime_end:
    case Intrinsic::invariant_start:
    case Intrinsic::invariant_end:
    case Intrinsic::assume:
    case Intrinsic::stacksave:
    case Intrinsic::stackrestore:
    case Intrinsic::eh_sjlj_setjmp:
    case Intrinsic::eh_sjlj_longjmp:
    case Intrinsic::clear_cache: return true;
    default: return false;
    }
}

static bool accept_intrinsic(const IntrinsicInst &call, Private &priv) {
    if (!call.mayReadOrWriteMemory() || call.onlyAccessesInaccessibleMemory() || is_known(call.getIntrinsicID())) {
        return true;
    }
    auto leads_to_shared = [&](const Use &use) { return use->getType()->isPtrOrPtrVectorTy() && !priv.is(use); };
    if (none_of(call.args(), leads_to_shared)) {
        return true;
    }
    refuse(call, "the intrinsic " + call.getCalledFunction()->getName() +
                     " reads or writes memory in a way that has no check; use plain loads and stores, or build this "
                     "file without --inline");
    return false;
}

static bool accept(const Instruction &instruction, Private &priv) {
    auto *call = dyn_cast<CallBase>(&instruction);
    if (!call) {
        if (auto *load = dyn_cast<LoadInst>(&instruction); load && isa<ScalableVectorType>(load->getType())) {
            refuse(instruction, "a load of a vector of unknown length has no check");
            return false;
        }
        return true;
    }
    if (call->isInlineAsm()) {
        if (is_harmless(*call)) {
            return true;
        }
        refuse(instruction,
               "this inline assembly may touch shared memory, which the checks cannot see; write it in C, or "
               "build this file without --inline");
        return false;
    }
    if (auto *intrinsic = dyn_cast<IntrinsicInst>(call)) {
        return accept_intrinsic(*intrinsic, priv);
    }
    if (const Function *callee = call->getCalledFunction();
        callee && callee->isDeclaration() && callee->getName().starts_with("__atomic_")) {
        if (callee->getName().starts_with("__atomic_is_lock_free") ||
            callee->getName().starts_with("__atomic_thread_fence") ||
            callee->getName().starts_with("__atomic_signal_fence")) {
            return true;
        }
        refuse(instruction, "the atomic operation " + callee->getName() +
                                " of libatomic has no check; use atomics of at most 8 bytes, aligned to their size");
        return false;
    }
    return true;
}

// Directives that define or name symbols, as glibc's headers use them.
static bool is_harmless_module_assembly(StringRef text) {
    SmallVector<StringRef, 8> lines;
    SplitString(text, lines, "\n;");
    return all_of(lines, [](StringRef line) {
        line = line.trim();
        return line.empty() || line.starts_with(".symver") || line.starts_with(".ident");
    });
}

static bool accept_module(Module &module) {
    Triple triple(module.getTargetTriple());
    if (triple.getArch() != Triple::x86_64 || triple.isX32() || !triple.isOSLinux()) {
        refuse(module, "the checks exist for x86-64 under Linux only, not for " + module.getTargetTriple());
        return false;
    }
    if (module.getModuleFlag("ThinLTO") || module.getModuleFlag("EnableSplitLTOUnit") ||
        module.getModuleFlag("UnifiedLTO")) {
        refuse(module, "link-time optimisation (-flto) would move loads away from their checks; leave it out");
        return false;
    }
    if (!is_harmless_module_assembly(module.getModuleInlineAsm())) {
        refuse(module, "assembly outside of functions may touch shared memory, which the checks cannot see");
        return false;
    }
    return true;
}

bool acceptable(Module &module, Private &priv) {
    if (!accept_module(module)) {
        return false;
    }
    bool fine = true;
    for (Function &f : module) {
        if (f.isDeclaration()) {
            continue;
        }
        for (auto kind : {Attribute::SanitizeAddress, Attribute::SanitizeThread, Attribute::SanitizeMemory,
                          Attribute::SanitizeHWAddress}) {
            if (f.hasFnAttribute(kind)) {
                refuse(f, DebugLoc(),
                       "the checks do not go together with this sanitizer: both use the same part of the address "
                       "space");
                return false;
            }
        }
        for (Instruction &instruction : instructions(f)) {
            fine &= accept(instruction, priv);
        }
    }
    return fine;
}

} // namespace comem
