package bodycost

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/exeunt/exeunt/object"
)

func TestMeasureOperations(t *testing.T) {
	times := func(n int, operation string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(operation+",", n), ",") + "]"
	}
	long := strings.Repeat("/a", object.MaxDepth+1)
	for _, c := range []struct {
		name, patch string
		want        patchWork
		refused     string
	}{
		{"none", `[]`, patchWork{}, ""},
		{"not a patch", `{"op":"add"}`, patchWork{}, ""},
		{"many", times(maxOperations, `{"op":"add","path":"/a","value":1}`), patchWork{perElement: maxOperations, bytes: 1}, ""},
		{"tests", times(10, `{"op":"test","path":"/a","value":"xyz"}`), patchWork{perByte: 10, perElement: 10, bytes: 5}, ""},
		{"copies on one level", times(5000, `{"op":"copy","from":"/a/b","path":"/a/c"}`), patchWork{perElement: 5000}, ""},
		{"too many", times(maxOperations+1, `{"op":"add","path":"/a","value":1}`), patchWork{}, "allowed maximum operations"},
		{"copies that deepen", times(object.MaxDepth+1, `{"op":"copy","from":"/a","path":"/a/c"}`), patchWork{}, "nested too deeply"},
		{"moves that deepen", times(object.MaxDepth+1, `{"op":"move","from":"/a","path":"/a/c"}`), patchWork{}, "nested too deeply"},
		{"a long path", `[{"op":"add","path":"` + long + `"}]`, patchWork{}, "nested too deeply"},
		{"a long path, escaped", `[{"op":"add","path":"` + strings.ReplaceAll(long, "/", `\u002f`) + `"}]`, patchWork{}, "nested too deeply"},
		{"a long path beside another name", `[{"op":"add","path":"` + long + `","PATH":"/"}]`, patchWork{}, "nested too deeply"},
	} {
		work, err := measureOperations([]byte(c.patch))
		switch {
		case c.refused == "" && (err != nil || work != c.want):
			t.Errorf("%s: %+v, %v; want %+v", c.name, work, err, c.want)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %s", c.name, err, c.refused)
		}
	}
}

func TestCheck(t *testing.T) {
	deep := func(open, shut string, n int) string { return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n) }
	message := func(n int) string {
		var m []byte
		for range n {
			m = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), m)
		}
		return "k8s\x00" + string(m)
	}
	asField := func(text string) string {
		return "k8s\x00" + string(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte(text)))
	}
	const most = object.MaxDepth
	for _, c := range []struct {
		name, contentType, body string
		code                    object.Code // 0 if it passes
	}{
		{"JSON", "application/json", deep(`{"a":`, "}", most), 0},
		{"deep JSON", "application/json", deep(`{"a":`, "}", most+1), object.BadRequest},
		{"deep JSON with a charset", "application/json; charset=utf-8", deep(`{"a":`, "}", most+1), object.BadRequest},
		{"no type", "", deep(`{"a":`, "}", most+1), object.BadRequest},
		{"YAML", "application/yaml", deep("[", "]", most) + "\n# so it is not JSON", 0},
		{"deep YAML", "application/yaml", deep("[", "]", most+1) + "\n# so it is not JSON", object.BadRequest},
		{"deep YAML that is JSON", "application/yaml", deep("[", "]", most+1), object.BadRequest},
		{"YAML of brackets", "application/yaml", "a: |\n  " + strings.Repeat("[", 1000), 0},
		{"YAML that is broken", "application/yaml", "a: [", 0},
		{"YAML with aliases", "application/yaml", "a: &a {b: c}\nd: [*a, *a]", 0},
		{"YAML with too many", "application/apply-patch+yaml", "a: &a " + strings.Repeat("x", 100_000) + "\nd: [" + strings.Repeat("*a, ", 100) + "]", object.TooLarge},
		{"protobuf", "application/vnd.kubernetes.protobuf", message(most), 0},
		{"deep protobuf", "application/vnd.kubernetes.protobuf", message(most + 2), object.BadRequest},
		{"protobuf of text", "application/vnd.kubernetes.protobuf", asField(strings.Repeat("\n", 100_000) + strings.Repeat("z", 100_000)), 0},
		{"protobuf of brackets", "application/vnd.kubernetes.protobuf", asField(strings.Repeat("{", 100_000)), 0},
		{"protobuf of deep JSON", "application/vnd.kubernetes.protobuf", asField(deep(`{"a":`, "}", most+1)), object.BadRequest},
		{"protobuf that is none", "application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff\xff", 0},
		{"no protobuf", "application/vnd.kubernetes.protobuf", "k8s", 0},
	} {
		err := Check(c.contentType, []byte(c.body))
		if c.code == 0 && err != nil || c.code != 0 && !object.Is(err, c.code) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
