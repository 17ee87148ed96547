package decode

import (
	"math/rand/v2"
	"regexp/syntax"
	"strings"
	"testing"
)

// sampleUnbounded is the maximum number of repetitions for the operator *. A pattern with the operator + may have one
// more repetition.
const sampleUnbounded = 3

func samplePattern(t testing.TB, r *rand.Rand, pattern string) string {
	t.Helper()
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		t.Fatalf("parse pattern %s: %v", pattern, err)
	}
	var out strings.Builder
	sample(&out, r, parsed)
	return out.String()
}

func sample(out *strings.Builder, r *rand.Rand, re *syntax.Regexp) {
	repeat := func(lowest, highest int) {
		if highest < 0 {
			highest = lowest + sampleUnbounded
		}
		for range lowest + r.IntN(highest-lowest+1) {
			sample(out, r, re.Sub[0])
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		out.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		pair := 2 * r.IntN(len(re.Rune)/2)
		first, last := re.Rune[pair], min(re.Rune[pair+1], re.Rune[pair]+1000)
		out.WriteRune(first + r.Int32N(last-first+1))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		out.WriteRune('a' + r.Int32N(26))
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpRepeat:
		repeat(re.Min, re.Max)
	case syntax.OpAlternate:
		sample(out, r, re.Sub[r.IntN(len(re.Sub))])
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			sample(out, r, sub)
		}
	}
}

func damage(r *rand.Rand, s string) string {
	runes := []rune(s)
	at := r.IntN(len(runes) + 1)
	odd := []rune("0 9.-+eEumMh:TZtz%/\u00e9\u0661\x00")[r.IntN(21)]
	switch {
	case at == len(runes) || r.IntN(3) == 0:
		return string(runes[:at]) + string(odd) + string(runes[at:])
	case r.IntN(2) == 0:
		return string(runes[:at]) + string(runes[at+1:])
	default:
		runes[at] = odd
		return string(runes)
	}
}
