// Which LLVM the plug-in is for, and the version of abi.h that its checks are of, as a text in its file. `comem-cc
// --inline` compares them with clang's version and its own before it calls clang, which would only say that it cannot
// load the plug-in.
#include "abi.h"
#include "llvm/Config/llvm-config.h"

#define COMEM_TEXT_OF(macro) COMEM_TEXT(macro)
#define COMEM_TEXT(text) #text

extern "C" __attribute__((used, visibility("default"))) const char comem_inline_plugin[] =
    "comem-inline-plugin llvm=" COMEM_TEXT_OF(LLVM_VERSION_MAJOR) " abi=" COMEM_TEXT_OF(COMEM_INLINE_ABI);
