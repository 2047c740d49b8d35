# Are two outputs the same? awk -v tolerance=1e-6 -f same.awk EXPECTED PRINTED: word by word, numbers within `tolerance`
# of the larger one (or of one). Says the first difference and ends with status 1.
function number(word) { return word ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }
function magnitude(x) { return x < 0 ? -x : x }
function close_to(a, b, scale) {
    scale = magnitude(a) > magnitude(b) ? magnitude(a) : magnitude(b)
    if (scale < 1) scale = 1
    return magnitude(a - b) <= tolerance * scale
}
function same(a, b) { return a == b || (number(a) && number(b) && close_to(a + 0, b + 0)) }
# What stands around numbers, as in (0.5, 1.5) or 80%, is no part of them.
{ gsub(/[(),:;=%|]/, " ") }
NR == FNR { expected[++lines] = $0; next }
{
    line++
    words = split(line > lines ? "" : expected[line], wanted, " ")
    if (words != NF) { print "line " line ": expected \"" expected[line] "\", got \"" $0 "\""; failed = 1; exit }
    for (i = 1; i <= NF; i++) {
        if (!same(wanted[i], $i)) {
            print "line " line ": expected \"" wanted[i] "\", got \"" $i "\" in: " $0
            failed = 1
            exit
        }
    }
}
END {
    if (!failed && !lines) { print "there is nothing to compare with"; failed = 1 }
    if (!failed && line < lines) { print "output ends after line " line " of " lines; failed = 1 }
    exit failed
}
