// What each object has beside the program's code: declarations of libcomem's functions, routines around them that keep
// all registers, a constructor, and a line of text in the section .comem.inline.
#include "inline.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace comem {

static const uint64_t SLOT_BYTES = 64;

Function *Runtime::plain(StringRef name) {
    LLVMContext &context = module.getContext();
    Type *none = Type::getVoidTy(context), *p = PointerType::get(context, 0);
    Type *i32 = Type::getInt32Ty(context), *i64 = Type::getInt64Ty(context);
    FunctionType *type;
    if (name.ends_with("_memcpy") || name.ends_with("_memmove")) {
        type = FunctionType::get(p, {p, p, i64}, false);
    } else if (name.ends_with("_memset")) {
        type = FunctionType::get(p, {p, i32, i64}, false);
    } else if (name.ends_with("_object")) {
        type = FunctionType::get(none, {i32, p, p}, false);
    } else if (name.ends_with("_verify")) {
        type = FunctionType::get(none, {p, i64, p}, false);
    } else { // read and write
        type = FunctionType::get(none, {p, p, i64}, false);
    }
    auto *out = cast<Function>(module.getOrInsertFunction(name, type).getCallee());
    out->setDoesNotThrow();
    return out;
}

GlobalVariable *Runtime::hazard() {
    if (auto *known = module.getNamedGlobal("__comem_hazard")) {
        return known;
    }
    auto *p = PointerType::get(module.getContext(), 0);
    return new GlobalVariable(module, p, false, GlobalValue::WeakODRLinkage, ConstantPointerNull::get(p),
                              "__comem_hazard", nullptr, GlobalValue::InitialExecTLSModel);
}

AllocaInst *Runtime::slot(Function &function, unsigned number) {
    AllocaInst *&out = slots[{&function, number}];
    if (!out) {
        auto *type = ArrayType::get(Type::getInt8Ty(module.getContext()), SLOT_BYTES);
        out = new AllocaInst(type, 0, "comem.slot", function.getEntryBlock().getFirstInsertionPt());
        out->setAlignment(Align(16));
    }
    return out;
}

// An assembly routine `NAME` that calls `callee` and leaves all registers but r11 as they are, to the width that `wide`
// says. `bytes` > 0: the routine's last argument or its result is a value of so many bytes, and goes by address to
// `callee`.
static std::string routine(StringRef name, StringRef callee, unsigned bytes, bool returns, bool wide) {
    static const char *const saved[] = {"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10"};
    std::string out;
    raw_string_ostream to(out);
    unsigned each = wide ? 32 : 16;
    const char *move = wide ? "vmovups" : "movups", *reg = wide ? "ymm" : "xmm";
    to << ".att_syntax\n.pushsection .text." << name << ",\"axG\",@progbits," << name << ",comdat\n"
       << ".weak " << name << "\n.hidden " << name << "\n.type " << name << ",@function\n"
       << name << ":\n"
       << ".cfi_startproc\npushq %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\nmovq %rsp, "
          "%rbp\n.cfi_def_cfa_register %rbp\n";
    for (const char *r : saved) {
        if (!returns || StringRef(r) != "rax") {
            to << "pushq %" << r << "\n";
        }
    }
    unsigned pushed = 8 * (returns ? 7 : 8);
    to << "subq $" << 16 * each + 16 << ", %rsp\nandq $-16, %rsp\n";
    for (unsigned i = 0; i < 16; i++) {
        to << move << " %" << reg << i << ", " << 16 + each * i << "(%rsp)\n";
    }
    to << (wide ? "vzeroupper\n" : "");
    if (bytes) {
        static const char *const parts[] = {"", "%sil", "%si", "", "%esi", "", "", "", "%rsi"};
        if (!returns) {
            to << "mov " << parts[bytes] << ", (%rsp)\n";
        }
        to << "movq %rsp, %rsi\nmovl $" << bytes << ", %edx\n";
    }
    to << "callq " << callee << "@PLT\n";
    for (unsigned i = 0; i < 16; i++) {
        to << move << " " << 16 + each * i << "(%rsp), %" << reg << i << "\n";
    }
    if (returns && bytes) {
        static const char *const loads[] = {
            "", "movzbl (%rsp), %eax", "movzwl (%rsp), %eax", "", "movl (%rsp), %eax", "", "", "", "movq (%rsp), %rax"};
        to << loads[bytes] << "\n";
    }
    to << "leaq -" << pushed << "(%rbp), %rsp\n";
    for (const char *r : reverse(saved)) {
        if (!returns || StringRef(r) != "rax") {
            to << "popq %" << r << "\n";
        }
    }
    to << "popq %rbp\n.cfi_def_cfa %rsp, 8\nretq\n.cfi_endproc\n.size " << name << ", .-" << name << "\n.popsection\n";
    return out;
}

FunctionCallee Runtime::thunk(StringRef callee, FunctionType *type, unsigned bytes, const Function &caller) {
    bool wide = caller.getFnAttribute("target-features").getValueAsString().contains("+avx");
    std::string name = (callee + (bytes ? Twine(bytes) : Twine()) + (wide ? "_avx" : "_sse")).str();
    if (Function *known = module.getFunction(name)) {
        return known;
    }
    assembly += routine(name, callee, bytes, !type->getReturnType()->isVoidTy(), wide);
    auto *out = Function::Create(type, GlobalValue::ExternalLinkage, name, module);
    out->setVisibility(GlobalValue::HiddenVisibility);
    out->setDSOLocal(true);
    out->setCallingConv(CallingConv::PreserveAll);
    out->setDoesNotThrow();
    return out;
}

CallInst *Runtime::cold(IRBuilder<> &at, StringRef callee, Type *result, unsigned bytes, ArrayRef<Value *> arguments) {
    SmallVector<Type *, 6> types;
    for (Value *argument : arguments) {
        types.push_back(argument->getType());
    }
    FunctionCallee routine =
        thunk(callee, FunctionType::get(result, types, false), bytes, *at.GetInsertBlock()->getParent());
    CallInst *call = at.CreateCall(routine, arguments);
    call->setCallingConv(CallingConv::PreserveAll);
    call->setDoesNotThrow();
    return call;
}

static bool goes_in_register(Type *type, uint64_t bytes) {
    return (type->isIntegerTy() || type->isPointerTy() || type->isFloatTy() || type->isDoubleTy()) &&
           (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
           (!type->isIntegerTy() || type->getIntegerBitWidth() == 8 * bytes);
}

Value *Runtime::load(IRBuilder<> &at, Value *address, Type *type) {
    uint64_t bytes = module.getDataLayout().getTypeStoreSize(type);
    if (goes_in_register(type, bytes)) {
        Value *word = cold(at, "__comem_inline_load", at.getInt64Ty(), bytes, {address});
        if (type->isPointerTy()) {
            return at.CreateIntToPtr(word, type);
        }
        return at.CreateBitCast(at.CreateTrunc(word, at.getIntNTy(8 * bytes)), type);
    }
    Function &f = *at.GetInsertBlock()->getParent();
    AllocaInst *by_address = slot(f, 0);
    if (bytes > SLOT_BYTES) {
        refuse(*by_address->getFunction(), at.getCurrentDebugLocation(),
               "a load of more than 64 bytes at once has no check");
    }
    cold(at, "__comem_inline_load", at.getVoidTy(), 0, {address, by_address, at.getInt64(bytes)});
    return at.CreateAlignedLoad(type, by_address, Align(16));
}

void Runtime::store(IRBuilder<> &at, Value *address, Value *value) {
    Type *type = value->getType();
    uint64_t bytes = module.getDataLayout().getTypeStoreSize(type);
    if (goes_in_register(type, bytes)) {
        Value *word = type->isPointerTy() ? at.CreatePtrToInt(value, at.getInt64Ty())
                                          : at.CreateBitCast(value, at.getIntNTy(8 * bytes));
        cold(at, "__comem_inline_store", at.getVoidTy(), bytes, {address, at.CreateZExt(word, at.getInt64Ty())});
        return;
    }
    AllocaInst *by_address = slot(*at.GetInsertBlock()->getParent(), 0);
    if (bytes > SLOT_BYTES) {
        refuse(*by_address->getFunction(), at.getCurrentDebugLocation(),
               "a store of more than 64 bytes at once has no check");
    }
    at.CreateAlignedStore(value, by_address, Align(16));
    cold(at, "__comem_inline_store", at.getVoidTy(), 0, {address, by_address, at.getInt64(bytes)});
}

void Runtime::own(IRBuilder<> &at, Value *first, Value *bytes, bool again) {
    cold(at, again ? "__comem_inline_own_again" : "__comem_inline_own", at.getVoidTy(), 0, {first, bytes});
}

Value *Runtime::enter(IRBuilder<> &at) { return cold(at, "__comem_inline_enter", at.getPtrTy(), 0, {}); }

void Runtime::window(IRBuilder<> &at) { cold(at, "__comem_inline_window", at.getVoidTy(), 0, {}); }

Value *Runtime::atomic(IRBuilder<> &at, Value *address, Value *operand, Value *expected, unsigned op) {
    Function &f = *at.GetInsertBlock()->getParent();
    Type *type = operand->getType();
    uint64_t bytes = module.getDataLayout().getTypeStoreSize(type);
    AllocaInst *old = slot(f, 0), *in = slot(f, 1);
    at.CreateAlignedStore(operand, in, Align(16));
    Value *compared = ConstantPointerNull::get(at.getPtrTy());
    if (expected) {
        compared = slot(f, 2);
        at.CreateAlignedStore(expected, compared, Align(16));
    }
    cold(at, "__comem_inline_atomic", at.getVoidTy(), 0,
         {address, at.getInt32(bytes), at.getInt32(op), in, compared, old});
    return at.CreateAlignedLoad(type, old, Align(16));
}

void Runtime::verify(IRBuilder<> &at, Value *address, uint64_t bytes, const DebugLoc &where) {
    Function &f = *at.GetInsertBlock()->getParent();
    std::string text = module.getSourceFileName();
    if (where) {
        text = (where->getFilename() + ":" + Twine(where->getLine())).str();
    }
    Constant *place = at.CreateGlobalString(text + ": " + f.getName().str(), "comem.where", 0, &module);
    cold(at, "__comem_inline_verify", at.getVoidTy(), 0, {address, at.getInt64(bytes), place});
}

void Runtime::finish(const Counts &counts) {
    LLVMContext &context = module.getContext();
    std::string name = module.getSourceFileName();
    for (char &c : name) {
        c = c == '"' || c == '\\' || c < ' ' ? '_' : c;
    }
    module.appendModuleInlineAsm(assembly + ".pushsection " COMEM_INLINE_SECTION ",\"\",@progbits\n.ascii \"abi=" +
                                 std::to_string(COMEM_INLINE_ABI) + " module=" + name + " " + counts.text() +
                                 (counts.calls.empty() ? "" : " calls=" + counts.calls) + "\\n\"\n.popsection\n");
    auto *hazard_of_thread = Function::Create(FunctionType::get(PointerType::get(context, 0), false),
                                              GlobalValue::InternalLinkage, "__comem_inline_hazard", module);
    IRBuilder<> at(BasicBlock::Create(context, "", hazard_of_thread));
    at.CreateRet(at.CreateThreadLocalAddress(hazard()));
    auto *start = Function::Create(FunctionType::get(at.getVoidTy(), false), GlobalValue::InternalLinkage,
                                   "__comem_inline_start", module);
    at.SetInsertPoint(BasicBlock::Create(context, "", start));
    Value *text = at.CreateGlobalString(name, "comem.module", 0, &module);
    at.CreateCall(plain("__comem_inline_object"), {at.getInt32(COMEM_INLINE_ABI), text, hazard_of_thread});
    at.CreateRetVoid();
    appendToGlobalCtors(module, start, 1);
}

} // namespace comem
