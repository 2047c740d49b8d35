// Makes plain loads and stores, or calls of libcomem, of the instructions that touch memory and are neither.
#include "inline.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace comem {

// Bytes of a copy or fill that becomes loads and stores of its own.
static const uint64_t EXPANDED_MAX = 64;
static const uint64_t VA_LIST_BYTES = 24;
// Bytes of the largest load or store that a check takes.
static const uint64_t ACCESS_MAX = 64;

namespace {

class Lowering {
  public:
    Lowering(Module &module, Private &priv, Runtime &runtime, Counts &counts)
        : module(module), priv(priv), runtime(runtime), counts(counts), layout(module.getDataLayout()) {}

    void library();
    void function(Function &f);

  private:
    void redirect(const char *from, const char *to);
    void drop_size_check(const char *from, const char *to);
    void intrinsic(IntrinsicInst &call);
    void copy(MemTransferInst &call);
    void fill(MemSetInst &call);
    void copy_pieces(IRBuilder<> &at, Value *to, Align to_align, Value *from, Align from_align, uint64_t bytes);
    void byval(CallBase &call, unsigned number);
    void va_list_by_copy(IntrinsicInst &call);
    void masked(IntrinsicInst &call);
    bool is_wide(Type *type, Value *address);
    void split(LoadInst &load);
    void split(StoreInst &store);
    void lane(IntrinsicInst &call, Value *address, Align align, Value *value, unsigned number, Value *&result);
    Type *piece(uint64_t bytes, uint64_t align);
    AllocaInst *temporary(Function &f, Type *type, Align align);
    bool expands(Value *length, Align align);
    void verify(Instruction &at, Value *address, Value *length);

    Module &module;
    Private &priv;
    Runtime &runtime;
    Counts &counts;
    const DataLayout &layout;
};

void Lowering::redirect(const char *from, const char *to) {
    Function *f = module.getFunction(from);
    if (f && f->isDeclaration() && !f->use_empty()) {
        FunctionCallee other = module.getOrInsertFunction(to, f->getFunctionType());
        f->replaceAllUsesWith(other.getCallee());
    }
}

// __memcpy_chk and its like have the size of the destination as a fourth argument.
void Lowering::drop_size_check(const char *from, const char *to) {
    Function *f = module.getFunction(from);
    if (!f || !f->isDeclaration()) {
        return;
    }
    for (User *user : make_early_inc_range(f->users())) {
        auto *call = dyn_cast<CallInst>(user);
        if (call && call->getCalledFunction() == f && call->arg_size() == 4) {
            IRBuilder<> at(call);
            Value *out = at.CreateCall(runtime.plain(to),
                                       {call->getArgOperand(0), call->getArgOperand(1), call->getArgOperand(2)});
            call->replaceAllUsesWith(out);
            call->eraseFromParent();
        }
    }
}

void Lowering::library() {
#define COMEM_WRAPPED(name, replacement) redirect(#name, #replacement);
#include "wrapped.def"
#undef COMEM_WRAPPED
    drop_size_check("__memcpy_chk", "__comem_inline_memcpy");
    drop_size_check("__memmove_chk", "__comem_inline_memmove");
    drop_size_check("__memset_chk", "__comem_inline_memset");
}

AllocaInst *Lowering::temporary(Function &f, Type *type, Align align) {
    auto *out =
        new AllocaInst(type, layout.getAllocaAddrSpace(), "comem.copy", f.getEntryBlock().getFirstInsertionPt());
    out->setAlignment(align);
    return out;
}

void Lowering::function(Function &f) {
    SmallVector<CallBase *, 32> calls;
    for (Instruction &instruction : make_early_inc_range(instructions(f))) {
        if (auto *call = dyn_cast<CallBase>(&instruction)) {
            calls.push_back(call);
        } else if (auto *load = dyn_cast<LoadInst>(&instruction)) {
            if (load->isSimple() && is_wide(load->getType(), load->getPointerOperand())) {
                split(*load);
            }
        } else if (auto *store = dyn_cast<StoreInst>(&instruction)) {
            if (store->isSimple() && is_wide(store->getValueOperand()->getType(), store->getPointerOperand())) {
                split(*store);
            }
        }
    }
    for (CallBase *call : calls) {
        // The code generator would make loads of a memcmp or strlen that it knows; libcomem has versions that check.
        if (Function *callee = call->getCalledFunction();
            callee && callee->isDeclaration() && !callee->isIntrinsic() && !call->doesNotAccessMemory()) {
            call->addFnAttr(Attribute::NoBuiltin);
        }
        for (unsigned i = 0; i < call->arg_size(); i++) {
            if (call->isByValArgument(i) && !priv.is(call->getArgOperand(i))) {
                byval(*call, i);
            }
        }
        if (auto *known = dyn_cast<IntrinsicInst>(call)) {
            intrinsic(*known);
        }
    }
}

void Lowering::intrinsic(IntrinsicInst &call) {
    switch (call.getIntrinsicID()) {
    case Intrinsic::memcpy:
    case Intrinsic::memcpy_inline:
    case Intrinsic::memmove: return copy(cast<MemTransferInst>(call));
    case Intrinsic::memset:
    case Intrinsic::memset_inline: return fill(cast<MemSetInst>(call));
    case Intrinsic::vastart:
    case Intrinsic::vacopy: return va_list_by_copy(call);
    case Intrinsic::masked_load:
    case Intrinsic::masked_store:
    case Intrinsic::masked_gather:
    case Intrinsic::masked_scatter: return masked(call);
    default: return;
    }
}

Type *Lowering::piece(uint64_t bytes, uint64_t align) {
    uint64_t size = std::min<uint64_t>({8, align, bytes});
    return Type::getIntNTy(module.getContext(), 8 * PowerOf2Ceil(size + 1) / 2);
}

bool Lowering::expands(Value *length, Align align) {
    auto *known = dyn_cast<ConstantInt>(length);
    return known && known->getZExtValue() <= EXPANDED_MAX &&
           (align >= Align(4) || known->getZExtValue() == align.value());
}

// All loads come before all stores, so that both sides may overlap.
void Lowering::copy_pieces(IRBuilder<> &at, Value *to, Align to_align, Value *from, Align from_align, uint64_t bytes) {
    SmallVector<std::pair<uint64_t, Value *>, 8> pieces;
    uint64_t align = std::min(to_align, from_align).value();
    for (uint64_t done = 0; done < bytes;) {
        Type *type = piece(bytes - done, align);
        Value *address = at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), from, done);
        pieces.push_back({done, at.CreateAlignedLoad(type, address, commonAlignment(from_align, done))});
        done += type->getIntegerBitWidth() / 8;
    }
    for (auto [offset, value] : pieces) {
        Value *address = at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), to, offset);
        at.CreateAlignedStore(value, address, commonAlignment(to_align, offset));
    }
}

void Lowering::verify(Instruction &at, Value *address, Value *length) {
    if (Options::get().verify && !Private::is_plainly_alloca(address)) {
        IRBuilder<> builder(&at);
        auto *known = dyn_cast<ConstantInt>(length);
        runtime.verify(builder, address, known ? known->getZExtValue() : 1, at.getDebugLoc());
    }
}

void Lowering::copy(MemTransferInst &call) {
    counts.copies++;
    if (priv.is(call.getDest()) && priv.is(call.getSource())) {
        verify(call, call.getDest(), call.getLength());
        verify(call, call.getSource(), call.getLength());
        return;
    }
    counts.copies_checked++;
    IRBuilder<> at(&call);
    Align to_align = call.getDestAlign().valueOrOne(), from_align = call.getSourceAlign().valueOrOne();
    if (!call.isVolatile() && expands(call.getLength(), std::min(to_align, from_align))) {
        uint64_t bytes = cast<ConstantInt>(call.getLength())->getZExtValue();
        copy_pieces(at, call.getDest(), to_align, call.getSource(), from_align, bytes);
    } else {
        const char *name =
            call.getIntrinsicID() == Intrinsic::memmove ? "__comem_inline_memmove" : "__comem_inline_memcpy";
        Value *length = at.CreateZExtOrTrunc(call.getLength(), at.getInt64Ty());
        at.CreateCall(runtime.plain(name), {call.getDest(), call.getSource(), length});
    }
    call.eraseFromParent();
}

void Lowering::fill(MemSetInst &call) {
    counts.copies++;
    if (priv.is(call.getDest())) {
        verify(call, call.getDest(), call.getLength());
        return;
    }
    counts.copies_checked++;
    IRBuilder<> at(&call);
    Align align = call.getDestAlign().valueOrOne();
    if (!call.isVolatile() && expands(call.getLength(), align)) {
        uint64_t bytes = cast<ConstantInt>(call.getLength())->getZExtValue();
        for (uint64_t done = 0; done < bytes;) {
            Type *type = piece(bytes - done, align.value());
            Value *wide =
                at.CreateMul(at.CreateZExt(call.getValue(), at.getInt64Ty()), at.getInt64(0x0101010101010101));
            Value *address = at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), call.getDest(), done);
            at.CreateAlignedStore(at.CreateTrunc(wide, type), address, commonAlignment(align, done));
            done += type->getIntegerBitWidth() / 8;
        }
    } else {
        Value *byte = at.CreateZExt(call.getValue(), at.getInt32Ty());
        Value *length = at.CreateZExtOrTrunc(call.getLength(), at.getInt64Ty());
        at.CreateCall(runtime.plain("__comem_inline_memset"), {call.getDest(), byte, length});
    }
    call.eraseFromParent();
}

// The code generator copies a byval argument onto the stack, without checks: it gets a private copy to copy.
void Lowering::byval(CallBase &call, unsigned number) {
    counts.copies++, counts.copies_checked++;
    Type *type = call.getParamByValType(number);
    Align align = call.getParamAlign(number).valueOrOne();
    uint64_t bytes = layout.getTypeAllocSize(type);
    AllocaInst *private_copy = temporary(*call.getFunction(), type, std::max(align, Align(8)));
    IRBuilder<> at(&call);
    if (bytes <= EXPANDED_MAX && align >= Align(4)) {
        copy_pieces(at, private_copy, align, call.getArgOperand(number), align, bytes);
    } else {
        at.CreateCall(runtime.plain("__comem_inline_read"),
                      {private_copy, call.getArgOperand(number), at.getInt64(bytes)});
    }
    call.setArgOperand(number, private_copy);
}

void Lowering::va_list_by_copy(IntrinsicInst &call) {
    auto make_private = [&](unsigned number, bool read, bool written) {
        Value *shared = call.getArgOperand(number);
        if (priv.is(shared)) {
            return;
        }
        Type *type = ArrayType::get(Type::getInt64Ty(module.getContext()), VA_LIST_BYTES / 8);
        AllocaInst *copy = temporary(*call.getFunction(), type, Align(16));
        IRBuilder<> at(&call);
        if (read) {
            at.CreateCall(runtime.plain("__comem_inline_read"), {copy, shared, at.getInt64(VA_LIST_BYTES)});
        }
        call.setArgOperand(number, copy);
        if (written) {
            at.SetInsertPoint(call.getNextNode());
            at.CreateCall(runtime.plain("__comem_inline_write"), {shared, copy, at.getInt64(VA_LIST_BYTES)});
        }
    };
    make_private(0, false, true);
    if (call.getIntrinsicID() == Intrinsic::vacopy) {
        make_private(1, true, false);
    }
}

// One lane of a masked load (`value` is null) or store.
void Lowering::lane(IntrinsicInst &call, Value *address, Align align, Value *value, unsigned number, Value *&result) {
    Value *mask = call.getArgOperand(value ? 3 : 2);
    Instruction *at = &call;
    auto *known = dyn_cast<Constant>(mask);
    Constant *known_lane = known ? known->getAggregateElement(number) : nullptr;
    if (known_lane && known_lane->isNullValue()) {
        return;
    }
    BasicBlock *before = call.getParent();
    if (!known_lane || !known_lane->isOneValue()) {
        IRBuilder<> builder(&call);
        at = SplitBlockAndInsertIfThen(builder.CreateExtractElement(mask, number), &call, false);
        before = at->getParent()->getSinglePredecessor();
    }
    IRBuilder<> builder(at);
    if (value) {
        builder.CreateAlignedStore(builder.CreateExtractElement(value, number), address, align);
        return;
    }
    Type *type = cast<VectorType>(call.getType())->getElementType();
    Value *loaded = builder.CreateInsertElement(result, builder.CreateAlignedLoad(type, address, align), number);
    if (at != &call) {
        IRBuilder<> join(call.getParent(), call.getParent()->begin());
        PHINode *phi = join.CreatePHI(call.getType(), 2);
        phi->addIncoming(result, before);
        phi->addIncoming(loaded, at->getParent());
        loaded = phi;
    }
    result = loaded;
}

// Masked loads and stores, gathers and scatters become loads and stores lane by lane.
void Lowering::masked(IntrinsicInst &call) {
    auto id = call.getIntrinsicID();
    bool store = id == Intrinsic::masked_store || id == Intrinsic::masked_scatter;
    bool one_address = id == Intrinsic::masked_store || id == Intrinsic::masked_load;
    Value *address = call.getArgOperand(store ? 1 : 0);
    if (one_address && priv.is(address)) {
        verify(call, address, ConstantInt::get(Type::getInt64Ty(module.getContext()), 1));
        return;
    }
    Value *value = store ? call.getArgOperand(0) : nullptr;
    Value *result = store ? nullptr : call.getArgOperand(3);
    auto *type = cast<FixedVectorType>(store ? value->getType() : call.getType());
    Align align(cast<ConstantInt>(call.getArgOperand(store ? 2 : 1))->getZExtValue());
    uint64_t element_bytes = layout.getTypeStoreSize(type->getElementType());
    Align element_align = commonAlignment(align, element_bytes);
    for (unsigned i = 0; i < type->getNumElements(); i++) {
        IRBuilder<> at(&call);
        Value *lane_address = one_address ? at.CreateConstInBoundsGEP1_64(type->getElementType(), address, i)
                                          : at.CreateExtractElement(address, i);
        lane(call, lane_address, one_address ? element_align : align, value, i, result);
    }
    if (!store) {
        call.replaceAllUsesWith(result);
    }
    call.eraseFromParent();
}

// Whether this is a vector larger than any register, such as the vectoriser makes of short loops, in memory that may be
// shared. The code generator would cut it up.
bool Lowering::is_wide(Type *type, Value *address) {
    auto *vector = dyn_cast<FixedVectorType>(type);
    if (!vector || layout.getTypeStoreSize(type) <= ACCESS_MAX || priv.is(address)) {
        return false;
    }
    uint64_t bits = layout.getTypeSizeInBits(vector->getElementType());
    return bits >= 8 && isPowerOf2_64(bits) && bits <= 8 * ACCESS_MAX;
}

void Lowering::split(LoadInst &load) {
    auto *type = cast<FixedVectorType>(load.getType());
    uint64_t each = layout.getTypeStoreSize(type->getElementType());
    int all = type->getNumElements(), most = ACCESS_MAX / each;
    IRBuilder<> at(&load);
    Value *whole = PoisonValue::get(type);
    for (int first = 0; first < all; first += most) {
        int behind = std::min(first + most, all);
        Value *address = at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), load.getPointerOperand(), first * each);
        auto *part = FixedVectorType::get(type->getElementType(), behind - first);
        LoadInst *piece = at.CreateAlignedLoad(part, address, commonAlignment(load.getAlign(), first * each));
        piece->copyMetadata(load);
        SmallVector<int, 64> widened(all, -1), joined(all);
        for (int lane = 0; lane < all; lane++) {
            bool is_here = lane >= first && lane < behind;
            widened[lane] = is_here ? lane - first : -1;
            joined[lane] = is_here ? all + lane : lane;
        }
        whole = at.CreateShuffleVector(whole, at.CreateShuffleVector(piece, widened), joined);
    }
    load.replaceAllUsesWith(whole);
    load.eraseFromParent();
}

void Lowering::split(StoreInst &store) {
    Value *value = store.getValueOperand();
    auto *type = cast<FixedVectorType>(value->getType());
    uint64_t each = layout.getTypeStoreSize(type->getElementType());
    int all = type->getNumElements(), most = ACCESS_MAX / each;
    IRBuilder<> at(&store);
    for (int first = 0; first < all; first += most) {
        SmallVector<int, 64> lanes;
        for (int lane = first; lane < std::min(first + most, all); lane++) {
            lanes.push_back(lane);
        }
        Value *address = at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), store.getPointerOperand(), first * each);
        StoreInst *piece = at.CreateAlignedStore(at.CreateShuffleVector(value, lanes), address,
                                                 commonAlignment(store.getAlign(), first * each));
        piece->copyMetadata(store);
    }
    store.eraseFromParent();
}

} // namespace

void lower(Module &module, Private &priv, Runtime &runtime, Counts &counts) {
    Lowering lowering(module, priv, runtime, counts);
    lowering.library();
    for (Function &f : module) {
        if (!f.isDeclaration() && !is_runtime(&f)) {
            lowering.function(f);
        }
    }
}

} // namespace comem
