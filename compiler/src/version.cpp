// Which LLVM the plug-in is for, as a text in its file: `comem-cc --inline` compares it with clang's version before
// it calls clang, which would only say that it cannot load the plug-in.
#include "llvm/Config/llvm-config.h"

#define COMEM_TEXT_OF(macro) COMEM_TEXT(macro)
#define COMEM_TEXT(text) #text

extern "C" __attribute__((used, visibility("default"))) const char comem_inline_plugin[] =
    "comem-inline-plugin llvm=" COMEM_TEXT_OF(LLVM_VERSION_MAJOR);
