// The parts of the plug-in, in the order in which a module goes through them.
#pragma once

#include "abi.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include <string>

namespace comem {

// What the environment of the compiler asks for.
struct Options {
    bool verify;        // COMEM_INLINE_VERIFY: accesses that are taken for private say so to the runtime
    std::string counts; // COMEM_INLINE_COUNTS: `module` or `function` prints the counts to the standard error
    long leave_out;     // COMEM_INLINE_LEAVE_OUT, for tests: this check (from 1 on) of the module is left out
    bool no_hazards;    // COMEM_INLINE_LEAVE_OUT=hazards, for tests: no hazard is raised
    bool windows;       // COMEM_INLINE_WINDOWS=1, for tests: a call of __comem_inline_window between check and store
    bool strips;        // COMEM_INLINE_STRIPS=0, for measurements: no strips
    static const Options &get();
};

// Static counts of a module or function: the paper's Table 1.
struct Counts {
    unsigned loads = 0, loads_checked = 0;
    unsigned stores = 0, stores_checked = 0;
    unsigned atomics = 0, atomics_checked = 0;
    unsigned copies = 0, copies_checked = 0; // memcpy, memmove, memset
    unsigned tests = 0;                      // combined tests of loads
    unsigned hazards = 0;                    // hazards of stores
    unsigned strips = 0;
    std::string calls; // functions outside of the module that get pointers which may be shared, with commas
    void add(const Counts &other);
    std::string text() const;
};

class StripMap;
class Private;

// The names of functions outside of the module that get pointers which may be shared, with commas between them.
std::string foreign_calls(llvm::Module &module, Private &priv);

// Whether memory is provably private: no shared memory can be there.
class Private {
  public:
    // Looks at functions one by one.
    Private() = default;
    // Looks at the arguments of internal functions too.
    explicit Private(llvm::Module &module) { arguments(module); }
    bool is(const llvm::Value *pointer);
    // An alloca reached without a phi or select: not worth a call of __comem_inline_verify.
    static bool is_plainly_alloca(const llvm::Value *pointer);

  private:
    bool walk(const llvm::Value *value, llvm::SmallPtrSetImpl<const llvm::Value *> &seen);
    bool call_result(const llvm::CallBase &call, llvm::SmallPtrSetImpl<const llvm::Value *> &seen);
    void arguments(llvm::Module &module);
    llvm::SmallPtrSet<const llvm::Argument *, 32> private_arguments;
};

// The functions of libcomem, and small assembly routines around them that keep all registers: a hot loop beside a cold
// call must not spill.
class Runtime {
  public:
    explicit Runtime(llvm::Module &module) : module(module) {}
    llvm::Function *plain(llvm::StringRef name);
    // Cold calls; each leaves every register but r11 as it is.
    llvm::Value *load(llvm::IRBuilder<> &at, llvm::Value *address, llvm::Type *type);
    void store(llvm::IRBuilder<> &at, llvm::Value *address, llvm::Value *value);
    void own(llvm::IRBuilder<> &at, llvm::Value *first, llvm::Value *bytes, bool again);
    llvm::Value *enter(llvm::IRBuilder<> &at);
    void window(llvm::IRBuilder<> &at);
    llvm::Value *atomic(llvm::IRBuilder<> &at, llvm::Value *address, llvm::Value *operand, llvm::Value *expected,
                        unsigned op);
    // A private place of 64 bytes on the stack of the function, for values that travel by address.
    llvm::AllocaInst *slot(llvm::Function &function, unsigned number);
    llvm::GlobalVariable *hazard();
    void verify(llvm::IRBuilder<> &at, llvm::Value *address, uint64_t bytes, const llvm::DebugLoc &where);
    // The constructor, the section and the routines that are used.
    void finish(const Counts &counts);

  private:
    llvm::FunctionCallee thunk(llvm::StringRef callee, llvm::FunctionType *type, unsigned bytes,
                               const llvm::Function &caller);
    llvm::CallInst *cold(llvm::IRBuilder<> &at, llvm::StringRef callee, llvm::Type *result, unsigned bytes,
                         llvm::ArrayRef<llvm::Value *> arguments);
    llvm::Module &module;
    std::string assembly;
    llvm::DenseMap<std::pair<llvm::Function *, unsigned>, llvm::AllocaInst *> slots;
};

// Ends the compilation with an error at the instruction, at a place in a function (the function, where the place is
// unknown), or for the module. clang keeps the instructions' places if it gets -g, or asks for remarks (-Rpass=WORD).
void refuse(const llvm::Instruction &at, const llvm::Twine &what);
void refuse(const llvm::Function &in, const llvm::DebugLoc &at, const llvm::Twine &what);
void refuse(llvm::Module &module, const llvm::Twine &what);

// What cannot be checked: inline assembly, unknown intrinsics, LTO. False: the compilation fails.
bool acceptable(llvm::Module &module, Private &priv);

// Makes loads, stores and checked calls of what is neither: copies, byval arguments, masked accesses; and sends the
// functions of libc that need it to libcomem.
void lower(llvm::Module &module, Private &priv, Runtime &runtime, Counts &counts);

// Puts the checks of stores and atomics into a function, then those of `loads`: the function's own loads.
void check_stores(llvm::Function &function, llvm::FunctionAnalysisManager &analyses, StripMap &strips, Private &priv,
                  Runtime &runtime, Counts &counts, long &leave_out);
void check_loads(llvm::Function &function, llvm::ArrayRef<llvm::LoadInst *> loads, StripMap &strips, Private &priv,
                 Runtime &runtime, Counts &counts, long &leave_out);

// A function of libcomem, or one that the plug-in has made.
inline bool is_runtime(const llvm::Function *function) {
    return function && function->getName().starts_with("__comem_inline_");
}

} // namespace comem
