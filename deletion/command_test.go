package deletion_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// hostile are texts that a terminal, a shell or a command would interpret.
var hostile = []string{
	"web", "-n", "--all", "-", "a b", "$(touch pwned)", "`id`", "$HOME", "${IFS}", "!!", "a'b", `a"b`, `\`, `a\nb`, "*", "?", "[a]", "~", "~root", "#", "a;b", "a&b", "a|b", "<a", ">a", "(a)", "{a,b}", "x=y", "%s", "a\nb", "a\n", "\t", "\r",
	"\x1b]0;title\a", "\x1b[31m", "\u009b31m", "\x7f", "\u0085", "\u202egnp", "\U000e0001", "日本", "ü'\x1b\\", "",
}

func randomText(rng *rand.Rand) string {
	var text strings.Builder
	for range 1 + rng.IntN(5) {
		if rng.IntN(2) == 0 {
			text.WriteString(hostile[rng.IntN(len(hostile))])
		} else {
			text.WriteRune(rune(1 + rng.IntN(0x300)))
		}
	}
	return text.String()
}

// TestCommandsNameTheirObject: a shell reads from a suggested command exactly the object, whatever
// its name, and the command has nothing that a terminal interprets.
func TestCommandsNameTheirObject(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	names := slices.Clone(hostile)
	for range 300 {
		names = append(names, randomText(rng))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	var script strings.Builder
	script.WriteString(`kubectl() { printf '%s\0' "$@"; }; exeunt() { kubectl "$@"; };` + "\n")
	var want []string
	for _, name := range names {
		ref := v1.ObjectReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Namespace: "shop", Name: name}
		const full = "RoleBinding.v1.rbac.authorization.k8s.io"
		commands := []string{deletion.Command(ref, "delete", "--cascade=background"), "exeunt why " + deletion.Target(ref), deletion.ForceCommand(ref, name)}
		if strings.HasPrefix(name, "-") {
			want = append(want, "delete", full+"/"+name, "-n", "shop", "--cascade=background")
		} else {
			want = append(want, "delete", full, name, "-n", "shop", "--cascade=background")
		}
		target := strings.ToLower(full) + "/" + name
		want = append(want, "why", target, "-n", "shop", "finalizer", "remove", target, "-n", "shop", name, "--reason", "...")
		for _, c := range commands {
			if strings.ContainsFunc(c, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is not printable", c)
			}
			fmt.Fprintln(&script, c)
		}
	}
	shell := exec.Command("bash")
	shell.Dir, shell.Stdin = t.TempDir(), strings.NewReader(script.String())
	out, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// TestPrintable: what is escaped has no control character, and a text without any stays.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"web": "web", "a b": "a b", "日本": "日本", "\x1b]0;t\a": `\u001b]0;t\u0007`, "a\nb\t": `a\u000ab\u0009`, "\u009b": `\u009b`, "\u202e": `\u202e`, "\U000e0001": `\udb40\udc01`,
	} {
		if got := deletion.Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
	if got, want := deletion.WithoutControls("a\tb\n\x1b\r\u202e"), "a\tb\n\\u001b\\u000d\u202e"; got != want {
		t.Errorf("WithoutControls = %q, want %q", got, want)
	}
}
