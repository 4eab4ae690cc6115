package registry

import (
	"errors"
	"testing"
)

// FuzzParseManifest: every accepted manifest can be stored.
func FuzzParseManifest(f *testing.F) {
	d := `{"mediaType":"a/b","digest":"sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","size":1}`
	for _, mediaType := range []string{"", dockerManifest, "application/vnd.oci.image.index.v1+json"} {
		f.Add(mediaType, []byte(`{"schemaVersion":2,"config":`+d+`,"layers":[`+d+`],"subject":`+d+`}`))
		f.Add(mediaType, []byte(`{"schemaVersion":2,"Config":`+d+`,"layers":[`+d+`],"layers":[]}`))
		f.Add(mediaType, []byte(`{"schemaVersion":2,"manifests":[`+d+`],"artifactType":"x"}`))
	}
	f.Fuzz(func(t *testing.T, contentType string, payload []byte) {
		m, err := parseManifest(contentType, payload)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != ManifestInvalid {
				t.Errorf("error %v", err)
			}
			return
		}
		if m.config != nil && m.children != nil || m.config == nil && m.layers != nil {
			t.Errorf("both a manifest and a list: %+v", m)
		}
		for _, digest := range append(m.blobDigests(), m.childDigests()...) {
			if _, err := parseDigest(digest); err != nil {
				t.Errorf("digest %q is accepted", digest)
			}
		}
		if m.artifactType != "" && !checkMediaType(m.artifactType) {
			t.Errorf("artifact type %q is accepted", m.artifactType)
		}
	})
}
