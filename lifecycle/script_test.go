package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
)

var rewrite = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestScripts runs testdata/*.txt. A script is a list of steps: a command with
// arguments, "----", and what follows from it. Lines that begin with # are
// comments. Times are counted from the start of the script.
//
//	kind [grace=SECONDS] [policy=P] [add=FINALIZER,…] [hold] [nograce]
//	create [finalizers=F,…]
//	update [finalizers=F,…] [data=VALUE] [version=V]
//	delete [grace=SECONDS] [policy=P] [orphan=BOOL] [uid=UID] [version=V]
//	wait DURATION
//
// A kind with grace is graceful; one that holds keeps its objects until an
// update has set data to "free". Without version, an update is unconditional.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if got == string(text) {
				return
			}
			if !*rewrite {
				t.Fatalf("%s differs; run with -update and read the diff. Got:\n%s", file, got)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// runScript returns the script with the expectations that hold.
func runScript(t *testing.T, text string) string {
	t.Helper()
	w := newWorld(t)
	var out strings.Builder
	expecting := false
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "":
			expecting = false
			out.WriteString("\n")
		case expecting:
		case trimmed == "----":
			expecting = true
		case strings.HasPrefix(trimmed, "#"):
			out.WriteString(line)
		default:
			fmt.Fprintf(&out, "%s\n----\n%s\n", trimmed, runCommand(w, strings.Fields(trimmed)))
		}
	}
	return out.String()
}

func runCommand(w *world, words []string) string {
	w.t.Helper()
	args := map[string]string{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		args[name] = value
	}
	var err error
	said := ""
	switch words[0] {
	case "kind":
		w.rules = scriptRules(w.t, args)
		return "ok"
	case "create":
		err = w.create(split(args["finalizers"]))
	case "update":
		err = w.update(args["version"], func(obj *corev1.ConfigMap) { scriptChange(obj, args) })
	case "delete":
		var outcome lifecycle.Outcome
		outcome, err = w.delete(scriptOptions(w.t, args))
		said = outcome.String() + ": "
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	default:
		w.t.Fatalf("no such command: %s", words[0])
	}
	if err != nil {
		return fmt.Sprintf("error: %v\n%v", err, w)
	}
	return said + w.String()
}

func scriptRules(t *testing.T, args map[string]string) lifecycle.Rules {
	t.Helper()
	rules := lifecycle.Rules{
		DefaultPolicy:    metav1.DeletionPropagation(args["policy"]),
		DeleteFinalizers: split(args["add"]),
	}
	if args["grace"] != "" {
		own := number(t, args["grace"])
		rules.Graceful = func(_ []byte, requested *int64) (int64, bool) {
			if requested != nil {
				return *requested, true
			}
			return own, true
		}
	}
	_, rules.NoGrace = args["nograce"]
	if _, hold := args["hold"]; hold {
		rules.Removable = func(body []byte) bool { return strings.Contains(string(body), `"data":{"k":"free"}`) }
	}
	return rules
}

func scriptChange(obj *corev1.ConfigMap, args map[string]string) {
	if list, given := args["finalizers"]; given {
		obj.Finalizers = split(list)
	}
	if value, given := args["data"]; given {
		obj.Data = map[string]string{"k": value}
	}
}

func scriptOptions(t *testing.T, args map[string]string) metav1.DeleteOptions {
	t.Helper()
	var options metav1.DeleteOptions
	if s, given := args["grace"]; given {
		options.GracePeriodSeconds = ptr(number(t, s))
	}
	if s, given := args["policy"]; given {
		options.PropagationPolicy = ptr(metav1.DeletionPropagation(s))
	}
	if s, given := args["orphan"]; given {
		options.OrphanDependents = ptr(s == "true")
	}
	preconditions := &metav1.Preconditions{}
	if s, given := args["uid"]; given {
		preconditions.UID = ptr(types.UID(s))
		options.Preconditions = preconditions
	}
	if s, given := args["version"]; given {
		preconditions.ResourceVersion = &s
		options.Preconditions = preconditions
	}
	return options
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
