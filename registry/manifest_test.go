package registry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry"
)

// TestManifestBytes: a manifest comes back byte for byte, with its type.
func TestManifestBytes(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "{}")
		w.push("shop/web", "layer")
		strange := "\n { \"custom\" : [1.0, \"\\u00e9\"],\t" + manifestOf("{}", "layer", "")[1:] + "\n\n"
		docker := strings.NewReplacer(ociManifest, dockerManifest).Replace(manifestOf("{}", "layer", ""))
		bare := strings.Replace(manifestOf("{}", "layer", ""), `"mediaType":"`+ociManifest+`",`, "", 1)
		for _, c := range []struct{ contentType, mediaType, manifest string }{
			{ociManifest, ociManifest, strange},
			{dockerManifest, dockerManifest, docker},
			{ociManifest + "; charset=utf-8", ociManifest, bare},
			{"", ociManifest, manifestOf("{}", "layer", `,"annotations":{"a":"b"}`)},
			{ociIndex, ociIndex, indexOf("", strange)},
			{dockerList, dockerList, strings.Replace(indexOf("", strange), ociIndex, dockerList, 1)},
			{ociIndex, ociIndex, indexOf("")},
		} {
			a := w.tag("shop/web", "latest", c.contentType, c.manifest)
			d := sha256(c.manifest)
			if a.header.Get("Docker-Content-Digest") != d || a.header.Get("Location") != "/v2/shop/web/manifests/latest" {
				w.Errorf("PUT: %v", a.header)
			}
			for _, ref := range []string{"latest", d} {
				for _, method := range []string{"GET", "HEAD"} {
					got := w.want(200, method, "/v2/shop/web/manifests/"+ref, nil, nil)
					if method == "GET" && got.body != c.manifest {
						w.Errorf("GET %s: other bytes", ref)
					}
					h := got.header
					if h.Get("Content-Type") != c.mediaType || h.Get("Docker-Content-Digest") != d || h.Get("Content-Length") != fmt.Sprint(len(c.manifest)) {
						w.Errorf("%s %s: %v", method, ref, h)
					}
				}
				for _, tag := range []string{d, `"` + d + `"`, `W/"` + d + `"`, `"other", "` + d + `"`, "*"} {
					w.want(304, "GET", "/v2/shop/web/manifests/"+ref, headers{"If-None-Match": tag}, nil)
				}
				w.want(200, "GET", "/v2/shop/web/manifests/"+ref, headers{"If-None-Match": `"other"`}, nil)
			}
		}
	})
}

func TestManifestByDigest(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		m := manifestOf("{}", "layer", "")
		a := w.want(201, "PUT", "/v2/a/manifests/"+sha512(m)+"?tag=v2&tag=v1&tag=v1", headers{"Content-Type": ociManifest}, m)
		if a.header.Get("Docker-Content-Digest") != sha512(m) || a.header.Get("OCI-Tag") != "v1, v2" {
			w.Errorf("PUT: %v", a.header)
		}
		if b := w.want(201, "PUT", "/v2/a/manifests/"+sha512(m), headers{"Content-Type": ociManifest}, m); b.header.Values("OCI-Tag") != nil {
			w.Errorf("PUT without tags: %v", b.header)
		}
		for _, ref := range []string{"v1", "v2", sha512(m)} {
			got := w.want(200, "GET", "/v2/a/manifests/"+ref, nil, nil)
			if got.body != m || got.header.Get("Docker-Content-Digest") != sha512(m) {
				w.Errorf("%s: %v", ref, got.header)
			}
		}
		w.want(404, "GET", "/v2/a/manifests/"+sha256(m), nil, nil)
		w.refuses(400, registry.DigestInvalid, "PUT", "/v2/a/manifests/"+sha256("x"), headers{"Content-Type": ociManifest}, m)
		w.refuses(400, registry.ManifestInvalid, "PUT", "/v2/a/manifests/"+sha256(m)+"?tag=..", headers{"Content-Type": ociManifest}, m)
		w.refuses(414, registry.Unsupported, "PUT", "/v2/a/manifests/"+sha256(m)+"?"+strings.Repeat("tag=t&", 101), headers{"Content-Type": ociManifest}, m)
		w.wantCounts("blobs 2, blob_uploads 0, manifests 1, tags 2")
	})
}

func TestManifestRefuses(t *testing.T) {
	config, layer := descriptor(ociConfig, sha256("{}"), 2), descriptor(ociLayer, sha256("layer"), 5)
	ok := manifestOf("{}", "layer", "")
	manifest := func(fields string) string { return `{"schemaVersion":2,` + fields + `}` }
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		w.push("elsewhere", "foreign")
		before := w.counts()
		for name, c := range map[string]struct {
			contentType, body string
			status            int
			code              registry.Code
		}{
			"nothing":                {ociManifest, "", 400, registry.ManifestInvalid},
			"not JSON":               {ociManifest, "hello", 400, registry.ManifestInvalid},
			"cut off":                {ociManifest, ok[:len(ok)-1], 400, registry.ManifestInvalid},
			"more after it":          {ociManifest, ok + "{}", 400, registry.ManifestInvalid},
			"an array":               {ociManifest, "[]", 400, registry.ManifestInvalid},
			"null":                   {ociManifest, "null", 400, registry.ManifestInvalid},
			"no schema version":      {ociManifest, `{"config":` + config + `,"layers":[]}`, 400, registry.ManifestInvalid},
			"schema 1 by its type":   {"application/vnd.docker.distribution.manifest.v1+prettyjws", ok, 400, registry.ManifestInvalid},
			"schema 1 by version":    {ociManifest, `{"schemaVersion":1,"name":"a","tag":"t","fsLayers":[]}`, 400, registry.ManifestInvalid},
			"schema 1 in disguise":   {dockerManifest, manifest(`"fsLayers":[{}],"config":` + config + `,"layers":[]`), 400, registry.ManifestInvalid},
			"no type":                {"", manifest(`"config":` + config + `,"layers":[]`), 400, registry.ManifestInvalid},
			"another type":           {"text/plain", manifest(`"config":` + config + `,"layers":[]`), 400, registry.ManifestInvalid},
			"two types":              {dockerManifest, ok, 400, registry.ManifestInvalid},
			"a type of its own":      {"application/vnd.example+json", manifest(`"mediaType":"application/vnd.example+json"`), 400, registry.ManifestInvalid},
			"no config":              {ociManifest, manifest(`"layers":[` + layer + `]`), 400, registry.ManifestInvalid},
			"no layers":              {ociManifest, manifest(`"config":` + config), 400, registry.ManifestInvalid},
			"manifest and list":      {ociManifest, manifest(`"config":` + config + `,"layers":[],"manifests":[]`), 400, registry.ManifestInvalid},
			"list and manifest":      {ociIndex, manifest(`"manifests":[],"layers":[]`), 400, registry.ManifestInvalid},
			"no manifests":           {ociIndex, manifest(`"annotations":{}`), 400, registry.ManifestInvalid},
			"a path for a digest":    {ociManifest, manifest(`"config":` + descriptor(ociConfig, "../../etc/passwd", 2) + `,"layers":[]`), 400, registry.ManifestInvalid},
			"unknown algorithm":      {ociManifest, manifest(`"config":` + descriptor(ociConfig, "md5:d41d8cd98f00b204e9800998ecf8427e", 2) + `,"layers":[]`), 400, registry.ManifestInvalid},
			"negative size":          {ociManifest, manifest(`"config":` + descriptor(ociConfig, sha256("{}"), -1) + `,"layers":[]`), 400, registry.ManifestInvalid},
			"layer without a type":   {ociManifest, manifest(`"config":` + config + `,"layers":[` + descriptor("", sha256("layer"), 5) + `]`), 400, registry.ManifestInvalid},
			"subject without digest": {ociManifest, manifestOf("{}", "layer", `,"subject":{"mediaType":"`+ociManifest+`","size":1}`), 400, registry.ManifestInvalid},
			"annotations of numbers": {ociManifest, manifestOf("{}", "layer", `,"annotations":{"a":1}`), 400, registry.ManifestInvalid},
			"layers twice":           {ociManifest, manifest(`"config":` + config + `,"layers":[],"layers":[` + layer + `]`), 400, registry.ManifestInvalid},
			"layers and Layers":      {ociManifest, manifest(`"config":` + config + `,"layers":[],"Layers":[` + layer + `]`), 400, registry.ManifestInvalid},
			"only Layers":            {ociManifest, manifest(`"config":` + config + `,"Layers":[` + layer + `]`), 400, registry.ManifestInvalid},
			"a digest twice":         {ociManifest, manifest(`"config":` + config + `,"layers":[` + strings.Replace(layer, "{", `{"digest":"`+sha256("x")+`",`, 1) + `]`), 400, registry.ManifestInvalid},
			"digest and Digest":      {ociManifest, manifest(`"config":` + config + `,"layers":[` + strings.Replace(layer, "}", `,"Digest":"`+sha256("x")+`"}`, 1) + `]`), 400, registry.ManifestInvalid},
			"Subject":                {ociManifest, manifestOf("{}", "layer", `,"Subject":`+layer), 400, registry.ManifestInvalid},
			"an annotation twice":    {ociManifest, manifestOf("{}", "layer", `,"annotations":{"a":"1","a":"2"}`), 400, registry.ManifestInvalid},
			"strange artifact type":  {ociManifest, manifestOf("{}", "layer", `,"artifactType":"a b"`), 400, registry.ManifestInvalid},
			"too many layers":        {ociManifest, manifest(`"config":` + config + `,"layers":[` + strings.Repeat(layer+",", 10_000) + layer + `]`), 400, registry.ManifestInvalid},
			"too large":              {ociManifest, ok + strings.Repeat(" ", 4<<20), 413, registry.SizeInvalid},
			"missing config":         {ociManifest, manifestOf("never pushed", "layer", ""), 404, registry.ManifestBlobUnknown},
			"missing layer":          {ociManifest, manifestOf("{}", "never pushed", ""), 404, registry.ManifestBlobUnknown},
			"layer of another":       {ociManifest, manifestOf("{}", "foreign", ""), 404, registry.ManifestBlobUnknown},
			"missing manifest":       {ociIndex, indexOf("", ok), 404, registry.ManifestBlobUnknown},
		} {
			for _, repo := range []string{"a", "a/new"} {
				if repo == "a/new" && c.status != 404 {
					continue
				}
				a := w.refuses(c.status, c.code, "PUT", "/v2/"+repo+"/manifests/latest", headers{"Content-Type": c.contentType}, c.body)
				if w.Failed() {
					w.Fatalf("%s: %s", name, a.body)
				}
			}
		}
		if repos := w.Strings(`SELECT path FROM repositories ORDER BY path`); len(repos) != 2 {
			w.Errorf("refused pushes made repositories: %v", repos)
		}
		// A streamed body has no known length.
		w.refuses(413, registry.SizeInvalid, "PUT", "/v2/a/manifests/latest", headers{"Content-Type": ociManifest}, streamed(ok+strings.Repeat(" ", 4<<20)))
		w.wantCounts(before)
	})
}

// TestManifestLarge: 4 MiB are accepted.
func TestManifestLarge(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		m := manifestOf("{}", "layer", "")
		m += strings.Repeat(" ", 4<<20-len(m))
		w.tag("a", "large", ociManifest, m)
		if a := w.want(200, "GET", "/v2/a/manifests/large", nil, nil); a.body != m {
			w.Error("other bytes")
		}
	})
}

// TestManifestMissing: the error names everything that is missing.
func TestManifestMissing(t *testing.T) {
	each(t, func(w *world) {
		a := w.refuses(404, registry.ManifestBlobUnknown, "PUT", "/v2/a/manifests/x", headers{"Content-Type": ociManifest}, manifestOf("c", "l", ""))
		var body struct {
			Errors []struct{ Detail struct{ Digest string } }
		}
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			w.Fatal(err)
		}
		var got []string
		for _, e := range body.Errors {
			got = append(got, e.Detail.Digest)
		}
		if diff := cmp.Diff([]string{sha256("c"), sha256("l")}, got); diff != "" {
			w.Error(diff)
		}
	})
}

// TestLayersElsewhere: layers that may not be distributed need not be pushed, whichever type says so.
func TestLayersElsewhere(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "{}")
		for _, mediaType := range []string{"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"} {
			a := w.tag("a", "v1", ociManifest, fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`,
				descriptor(ociConfig, sha256("{}"), 2), descriptor(mediaType, sha256(mediaType), 7)))
			if len(a.header.Values("Warning")) != 1 {
				w.Errorf("%s: %v", mediaType, a.header)
			}
		}
	})
}

// TestManifestKeeps: the rows that a manifest creates.
func TestManifestKeeps(t *testing.T) {
	foreign := descriptor("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", sha256("foreign"), 7)
	restricted := descriptor("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", sha256("restricted"), 10)
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		w.push("a", "restricted")
		m := fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s,%s,%s,%s]}`,
			descriptor(ociConfig, sha256("{}"), 2), descriptor(ociLayer, sha256("layer"), 5), foreign, restricted,
			descriptor(ociLayer, sha256("layer"), 5)) // the same layer twice
		a := w.tag("a", "v1", ociManifest, m)
		if warning := a.header.Values("Warning"); len(warning) != 1 || !strings.HasPrefix(warning[0], `299 - "layer `+sha256("foreign")) {
			w.Errorf("Warning: %q", warning)
		}
		index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[%s,%s]}`,
			descriptor(ociManifest, sha256(m), len(m)), descriptor("application/vnd.example", sha256("layer"), 5))
		w.tag("a", "v1", ociIndex, index)
		w.tag("a", "", ociManifest, m) // again
		got := w.Strings(`
			SELECT 'config ' || coalesce(b.digest, 'none') || ' size ' || m.total_size FROM manifests m
				LEFT JOIN blobs b ON b.id = m.configuration_blob_id
			UNION ALL SELECT 'layer ' || b.digest || ' of ' || m.digest || ' ' || t.media_type FROM layers l
				JOIN manifests m ON m.id = l.manifest_id JOIN media_types t ON t.id = l.media_type_id JOIN blobs b ON b.id = l.blob_id
			UNION ALL SELECT 'child ' || c.digest || ' of ' || p.digest FROM manifest_references f
				JOIN manifests c ON c.id = f.child_id JOIN manifests p ON p.id = f.parent_id
			UNION ALL SELECT 'tag ' || g.name || ' ' || m.digest FROM tags g JOIN manifests m ON m.id = g.manifest_id
			ORDER BY 1`)
		want := []string{
			"child " + sha256(m) + " of " + sha256(index),
			"config " + sha256("{}") + " size 22",
			"config none size 5",
			"layer " + sha256("layer") + " of " + sha256(m) + " " + ociLayer,
			"layer " + sha256("layer") + " of " + sha256(index) + " application/vnd.example",
			"layer " + sha256("restricted") + " of " + sha256(m) + " application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
			"tag v1 " + sha256(index),
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			w.Error(diff)
		}
	})
}

func TestManifestUnknown(t *testing.T) {
	each(t, func(w *world) {
		w.image("a", "v1", "layer", "")
		for _, method := range []string{"GET", "HEAD", "DELETE"} {
			w.refuses(404, registry.ManifestUnknown, method, "/v2/a/manifests/v2", nil, nil)
			w.refuses(404, registry.ManifestUnknown, method, "/v2/a/manifests/"+sha256("x"), nil, nil)
			w.refuses(404, registry.NameUnknown, method, "/v2/b/manifests/v1", nil, nil)
		}
	})
}

func TestManifestDelete(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("a", "v1", "layer", "")
		w.tag("a", "v2", ociManifest, m)
		w.tag("a", "v3", ociManifest, m)
		w.want(202, "DELETE", "/v2/a/manifests/v1", nil, nil)
		w.want(404, "GET", "/v2/a/manifests/v1", nil, nil)
		w.want(200, "GET", "/v2/a/manifests/v2", nil, nil)
		w.refuses(404, registry.ManifestUnknown, "DELETE", "/v2/a/manifests/v1", nil, nil)

		index := indexOf("", m)
		w.tag("a", "list", ociIndex, index)
		a := w.refuses(405, registry.Unsupported, "DELETE", "/v2/a/manifests/"+sha256(m), nil, nil)
		if !strings.Contains(a.body, sha256(index)) {
			w.Errorf("the refusal does not name the list: %s", a.body)
		}
		w.want(200, "GET", "/v2/a/manifests/v2", nil, nil)
		w.want(202, "DELETE", "/v2/a/manifests/"+sha256(index), nil, nil)
		w.want(404, "GET", "/v2/a/manifests/list", nil, nil)
		w.want(202, "DELETE", "/v2/a/manifests/"+sha256(m), nil, nil)
		for _, ref := range []string{"v2", "v3", sha256(m)} {
			w.want(404, "GET", "/v2/a/manifests/"+ref, nil, nil)
		}
		w.wantCounts("blobs 2, blob_uploads 0, manifests 0, tags 0")
		// All of it can be pushed again.
		w.tag("a", "v1", ociManifest, m)
		w.want(200, "GET", "/v2/a/manifests/v1", nil, nil)
	})
}
