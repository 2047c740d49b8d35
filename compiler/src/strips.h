// Strips: a loop that stores to consecutive addresses is cut into pieces of at most 4 KiB. Before each piece, one
// hazard for its whole range is raised and the entries of its lines are checked; then the plain loop runs, and is
// vectorised.
#pragma once

#include "inline.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/ValueHandle.h"

namespace comem {

// Before the vectoriser: cuts loops into strips. Calls of three functions that do not exist mark them for the last
// pass.
struct MakeStrips : llvm::PassInfoMixin<MakeStrips> {
    static bool isRequired() { return false; }
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

// A strip in the last pass.
struct Strip {
    llvm::WeakTrackingVH hazard; // the address of the thread's hazard
    llvm::WeakTrackingVH first, bytes; // a strip's address may have been loaded itself: see StripMap::replace

    // Raises the hazard at the end of the builder's block and checks all entries; goes on to `fine` or to `taken`.
    void raise(llvm::IRBuilder<> &at, llvm::BasicBlock *fine, llvm::BasicBlock *taken) const;
    // Lowers the hazard.
    void lower(llvm::IRBuilder<> &at) const;
    // A cold path inside the strip has lowered the hazard: raises it again, as often as it takes, and goes on to
    // `fine`.
    void raise_again(llvm::IRBuilder<> &at, Runtime &runtime, llvm::BasicBlock *fine) const;
};

// Which strip a block of a function belongs to.
class StripMap {
  public:
    // Finds the strips of a function and splits its blocks at their borders.
    explicit StripMap(llvm::Function &function);
    // Makes code of the marks. `hazard` stands for the hazard's address.
    void expand(llvm::Value *hazard, Runtime &runtime);
    bool empty() const { return begins.empty(); }
    unsigned size() const { return enters.size(); }
    const Strip *of(const llvm::BasicBlock *block) const;
    // A tested value takes the place of a loaded one, in the ranges of strips too.
    void replace(llvm::Value *loaded, llvm::Value *tested);
    // A load of the strip's own range needs no test: the range is valid while the hazard is up.
    bool is_own(const llvm::LoadInst &load) const;

  private:
    void region(llvm::CallInst *enter);
    void begin(llvm::CallInst *mark, llvm::Value *hazard, Runtime &runtime);
    llvm::Function &function;
    llvm::SmallVector<llvm::CallInst *, 4> begins, enters, ends;
    std::vector<std::unique_ptr<Strip>> strips;
    llvm::DenseMap<const llvm::BasicBlock *, const Strip *> blocks;
    llvm::MDNode *own = nullptr;
    bool broken = false; // what was found is not what MakeStrips made
};

} // namespace comem
