package importer

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
)

// files is a handmade tree, with the root of Tree.files.
type files struct{ fstest.MapFS }

func (f files) write(at, content string) { f.MapFS[at] = &fstest.MapFile{Data: []byte(content)} }

// store stores bytes, under their digest or under another.
func (f files) store(content string, under ...digest.Digest) digest.Digest {
	d := digest.FromString(content)
	if len(under) > 0 {
		d = under[0]
	}
	f.write(dataPath(d), content)
	return d
}

func (f files) layer(repo, content string) digest.Digest {
	d := f.store(content)
	f.write("repositories/"+repo+"/_layers/"+digestPath(d)+"/link", d.String())
	return d
}

func (f files) manifest(repo, content string) digest.Digest {
	d := f.store(content)
	f.write("repositories/"+repo+"/_manifests/revisions/"+digestPath(d)+"/link", d.String())
	return d
}

func (f files) tag(repo, tag string, d digest.Digest) {
	f.write("repositories/"+repo+"/_manifests/tags/"+tag+"/current/link", d.String())
	f.write("repositories/"+repo+"/_manifests/tags/"+tag+"/index/"+digestPath(d)+"/link", d.String())
}

func (f files) tree(t *testing.T) *Tree {
	t.Helper()
	tree, err := newTree("DIR", f)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func descriptor(d digest.Digest) string {
	return fmt.Sprintf(`{"mediaType":"application/x","digest":%q,"size":1}`, d)
}

func imageOf(config digest.Digest, layers ...digest.Digest) string {
	var list []string
	for _, d := range layers {
		list = append(list, descriptor(d))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`, descriptor(config), strings.Join(list, ","))
}

func listOf(manifests ...digest.Digest) string {
	var list []string
	for _, d := range manifests {
		list = append(list, descriptor(d))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"manifests":[%s]}`, strings.Join(list, ","))
}

// summary returns a plan as text: one line per manifest, grouped by level.
func summary(p Plan) string {
	var b strings.Builder
	for i, level := range p.Levels {
		for _, m := range level {
			fmt.Fprintf(&b, "%d %s %s %d blobs %v\n", i, m.Digest.Encoded()[:8], m.MediaType, len(m.Blobs), m.Tags)
		}
	}
	for _, problem := range p.Problems {
		fmt.Fprintln(&b, problem)
	}
	fmt.Fprintf(&b, "unused %d\n", p.Unused)
	return b.String()
}

func short(d digest.Digest) string { return d.Encoded()[:8] }

func TestRepositories(t *testing.T) {
	f := files{fstest.MapFS{}}
	f.manifest("shop/web", "{}")
	f.manifest("shop/web", "{} ")
	f.manifest("shop/web/inner", "{}")
	f.manifest("Shop", "{}")
	f.write("repositories/blobs/only/_layers/sha256/x/link", "x") // nothing was pushed to it
	f.write("repositories/odd/_manifests/revisions/sha256/no-digest/link", "x")
	f.write("repositories/file", "x")
	f.write("repositories/up/_uploads/1/data", "x")
	list, problems, err := f.tree(t).Repositories()
	if err != nil {
		t.Fatal(err)
	}
	want := []Repository{{"odd", 0}, {"shop/web", 2}, {"shop/web/inner", 1}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	if len(problems) != 1 || problems[0].String() != "Shop: this is not a valid repository name" {
		t.Errorf("problems: %v", problems)
	}
}

func TestOpenTreeRefuses(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/nowhere"} {
		if _, err := OpenTree(dir); err == nil || !strings.Contains(err.Error(), dir+" is not the storage of a registry") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestPlanOrder: lists come after their manifests, at any depth.
func TestPlanOrder(t *testing.T) {
	f := files{fstest.MapFS{}}
	a := f.manifest("r", imageOf(f.layer("r", "c"), f.layer("r", "l"), f.layer("r", "l")))
	b := f.manifest("r", `{"schemaVersion":2,"mediaType":"application/b","config":null,"layers":[]}`)
	inner := f.manifest("r", listOf(a, b, a))
	outer := f.manifest("r", listOf(inner, b, digest.FromString("elsewhere")))
	f.layer("r", "unused")
	f.tag("r", "v1", outer)
	f.tag("r", "latest", outer)
	f.tag("r", "a", a)
	leaves := []string{
		"0 " + short(a) + " application/vnd.oci.image.manifest.v1+json 2 blobs [a]\n",
		"0 " + short(b) + " application/b 0 blobs []\n",
	}
	if b < a {
		leaves[0], leaves[1] = leaves[1], leaves[0]
	}
	want := strings.Join(leaves, "") +
		"1 " + short(inner) + " application/vnd.oci.image.index.v1+json 0 blobs []\n" +
		"2 " + short(outer) + " application/vnd.oci.image.index.v1+json 0 blobs [latest v1]\n" +
		"unused 1\n"
	if diff := cmp.Diff(want, summary(f.tree(t).Plan("r"))); diff != "" {
		t.Error(diff)
	}
}

// TestPlanDeep: only memory limits the depth of a chain of lists.
func TestPlanDeep(t *testing.T) {
	const depth = 3_000
	f := files{fstest.MapFS{}}
	last := f.manifest("r", listOf())
	for range depth - 1 {
		last = f.manifest("r", listOf(last))
	}
	plan := f.tree(t).Plan("r")
	if len(plan.Levels) != depth || plan.Levels[depth-1][0].Digest != last || len(plan.Problems) > 0 {
		t.Errorf("%d levels, problems %v", len(plan.Levels), plan.Problems)
	}
}

// TestPlanProblems: unreadable items are named, and the rest is planned.
func TestPlanProblems(t *testing.T) {
	f := files{fstest.MapFS{}}
	good := f.manifest("r", listOf())
	at := "repositories/r/_manifests/"

	gone := digest.FromString("gone")
	f.write(at+"revisions/"+digestPath(gone)+"/link", gone.String())
	changed := digest.FromString("changed")
	f.write(at+"revisions/"+digestPath(changed)+"/link", changed.String())
	f.store(listOf(changed), changed) // it would contain itself
	empty := digest.FromString("empty")
	f.write(at+"revisions/"+digestPath(empty)+"/link", "")
	deleted := digest.FromString("deleted")
	f.write(at+"revisions/"+digestPath(deleted)+"/signatures/x", "")
	large := f.manifest("r", strings.Repeat(" ", maxManifest+1))
	nonsense := f.manifest("r", "nonsense")

	f.tag("r", "good", good)
	f.tag("r", "gone", gone)
	f.write(at+"tags/deleted/index/sha256/x/link", "x")
	f.write(at+"tags/torn/current/link", "sha256:12")
	f.tag("r", "not a tag", good)

	plan := f.tree(t).Plan("r")
	got := map[string]string{}
	for _, p := range plan.Problems {
		got[p.Item] = p.Err.Error()
	}
	for item, want := range map[string]string{
		"r@" + gone.String():    "its bytes are missing: there is no docker/registry/v2/blobs/sha256/",
		"r@" + changed.String(): "its bytes have digest sha256:",
		"r@" + empty.String():   `holds "", which is not a digest`,
		"r@" + large.String():   "is larger than 4194304 bytes",
		"r:gone":                "it is at " + gone.String() + ", which cannot be read",
		"r:torn":                `holds "sha256:12", which is not a digest`,
		"r:not a tag":           "this is not a valid tag name",
	} {
		if !strings.Contains(got[item], want) {
			t.Errorf("%s: %q, want %q", item, got[item], want)
		}
		delete(got, item)
	}
	if len(got) > 0 {
		t.Errorf("also: %v", got)
	}
	planned := map[digest.Digest][]string{}
	for _, m := range plan.Levels[0] {
		planned[m.Digest] = m.Tags
	}
	if diff := cmp.Diff(map[digest.Digest][]string{good: {"good"}, nonsense: nil}, planned); diff != "" {
		t.Error(diff)
	}
}

// TestPlanOtherAlgorithm: a manifest that was pushed with a digest of another
// algorithm links to the bytes under the registry's own digest.
func TestPlanOtherAlgorithm(t *testing.T) {
	f := files{fstest.MapFS{}}
	stored := f.store(listOf())
	named := digest.SHA512.FromString(listOf())
	f.write("repositories/r/_manifests/revisions/"+digestPath(named)+"/link", stored.String())
	plan := f.tree(t).Plan("r")
	if len(plan.Problems) > 0 || plan.manifests() != 1 || plan.Levels[0][0].Digest != named || plan.Levels[0][0].content != stored {
		t.Errorf("%+v", plan)
	}
}
