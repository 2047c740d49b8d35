//! `derive(Plain)`: makes a struct one that may live in Comem's shared memory, if it can.
//!
//! What it checks, the compiler says in its own words or in those given here:
//!
//! - It is a struct without parameters. An enum has patterns of bytes that are none of its variants; a union says
//!   nothing of its bytes.
//! - Each field is `Plain` itself, which owns no memory and holds no reference.
//! - There are no bytes between or behind the fields: what stands there is no value, and would not reach other nodes.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, parse_macro_input};

/// Makes a struct of plain fields `comem::heap::Plain`, and a `comem::Element` of shared arrays.
#[proc_macro_derive(Plain)]
pub fn derive_plain(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    plain(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn plain(input: &DeriveInput) -> Result<Tokens, Error> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        let what = "derive(Plain) is for types without parameters: how they lie in memory must be known here";
        return Err(Error::new(input.generics.span(), what));
    }
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => {
            let what = "an enum is not plain: not every pattern of bytes is one of its variants; store its number";
            return Err(Error::new(name.span(), what));
        }
        Data::Union(_) => {
            return Err(Error::new(name.span(), "a union is not plain: store its bytes in an array"));
        }
    };
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let check = format_ident!("is_plain", span = Span::mixed_site());
    // Each bound stands where its field does, so that the compiler points there.
    let checks = types.iter().map(|ty| quote_spanned!(ty.span()=> #check::<#ty>();));
    let sizes = types.iter().map(|ty| quote!(::core::mem::size_of::<#ty>()));
    let gap = format!(
        "`{name}` has bytes of padding between or behind its fields, which have no value: order the fields by size, \
         the largest first, or fill the gap with a field of `[u8; N]`"
    );
    Ok(quote! {
        const _: () = {
            const fn #check<T: ::comem::heap::Plain + ::comem::Element>() {}
            const fn each_field() {
                #(#checks)*
            }
            each_field();
            ::core::assert!(::core::mem::size_of::<#name>() == 0 #(+ #sizes)*, #gap);
        };
        // SAFETY: each field is plain, as is checked above, and there is nothing else in the struct.
        unsafe impl ::comem::heap::Plain for #name {}
        // SAFETY: as above.
        unsafe impl ::comem::Element for #name {}
    })
}
