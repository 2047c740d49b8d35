// The plug-in's face to clang: `clang-19 -fpass-plugin=libcomem_inline.so`.
//
// Checks go in after all optimisation, at every level from -O0 on, so that no pass moves a load away from its test.
#include "inline.h"
#include "strips.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include <cstdlib>

using namespace llvm;

namespace comem {

static std::string environment(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

const Options &Options::get() {
    static const Options options = {
        environment("COMEM_INLINE_VERIFY") == "1",           environment("COMEM_INLINE_COUNTS"),
        atol(environment("COMEM_INLINE_LEAVE_OUT").c_str()), environment("COMEM_INLINE_LEAVE_OUT") == "hazards",
        environment("COMEM_INLINE_WINDOWS") == "1",          environment("COMEM_INLINE_STRIPS") != "0",
    };
    return options;
}

void Counts::add(const Counts &other) {
    loads += other.loads, loads_checked += other.loads_checked;
    stores += other.stores, stores_checked += other.stores_checked;
    atomics += other.atomics, atomics_checked += other.atomics_checked;
    copies += other.copies, copies_checked += other.copies_checked;
    tests += other.tests, hazards += other.hazards, strips += other.strips;
}

std::string Counts::text() const {
    std::string out;
    raw_string_ostream(out) << "loads=" << loads_checked << "/" << loads << " stores=" << stores_checked << "/"
                            << stores << " atomics=" << atomics_checked << "/" << atomics
                            << " copies=" << copies_checked << "/" << copies << " tests=" << tests
                            << " hazards=" << hazards << " strips=" << strips;
    return out;
}

namespace {

struct InlineChecks : PassInfoMixin<InlineChecks> {
    static bool isRequired() { return true; }

    PreservedAnalyses run(Module &module, ModuleAnalysisManager &modules) {
        auto &analyses = modules.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
        Private priv(module);
        if (!acceptable(module, priv)) {
            return PreservedAnalyses::none();
        }
        Runtime runtime(module);
        Counts counts;
        lower(module, priv, runtime, counts);
        counts.calls = foreign_calls(module, priv);
        long leave_out = Options::get().leave_out;
        SmallVector<Function *, 64> functions;
        for (Function &f : module) {
            if (!f.isDeclaration() && !f.hasAvailableExternallyLinkage() && !is_runtime(&f)) {
                functions.push_back(&f);
            }
        }
        for (Function *f : functions) {
            Counts own;
            analyses.invalidate(*f, PreservedAnalyses::none());
            SmallVector<LoadInst *, 64> loads;
            for (Instruction &instruction : instructions(f)) {
                if (auto *load = dyn_cast<LoadInst>(&instruction)) {
                    loads.push_back(load);
                }
            }
            StripMap strips(*f);
            check_stores(*f, analyses, strips, priv, runtime, own, leave_out);
            check_loads(*f, loads, strips, priv, runtime, own, leave_out);
            if (own.loads_checked + own.stores_checked + own.atomics_checked > 0) {
                f->removeFnAttr(Attribute::Memory);
            }
            if (Options::get().counts == "function") {
                errs() << "comem: " << module.getSourceFileName() << ": " << f->getName() << ": " << own.text() << "\n";
            }
            counts.add(own);
        }
        if (!Options::get().counts.empty()) {
            errs() << "comem: " << module.getSourceFileName() << ": " << counts.text() << "\n";
        }
        runtime.finish(counts);
        return PreservedAnalyses::none();
    }
};

} // namespace
} // namespace comem

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "comem-inline", "1", [](PassBuilder &builder) {
                builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager &passes, OptimizationLevel) { passes.addPass(comem::InlineChecks()); });
                builder.registerVectorizerStartEPCallback([](FunctionPassManager &passes, OptimizationLevel) {
                    passes.addPass(LoopSimplifyPass());
                    passes.addPass(LCSSAPass());
                    passes.addPass(comem::MakeStrips());
                });
                builder.registerPipelineParsingCallback([](StringRef name, ModulePassManager &passes, auto) {
                    if (name == "comem-inline") {
                        passes.addPass(comem::InlineChecks());
                        return true;
                    }
                    return false;
                });
            }};
}
