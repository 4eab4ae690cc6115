package access

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// Expiries returns when the certificates in use expire: of the authority, of the API's
// listener, of the previous authority during a rotation, and of the first authority in the
// file of client authorities. Those that an administrator provides by file count too.
func (id *Identity) Expiries() map[string]time.Time {
	serving := id.provided.serving.Load()
	if serving == nil {
		serving = id.serving.Load()
	}
	expiries := map[string]time.Time{"authority": id.Authority.NotAfter}
	if serving != nil && serving.Leaf != nil {
		expiries["serving"] = serving.Leaf.NotAfter
	}
	for _, previous := range id.rotation.previous {
		expiries["previous-authority"] = previous.NotAfter
	}
	if first := id.provided.expires.Load(); first != nil {
		expiries["client-authority"] = *first
	}
	return expiries
}

// firstExpiry returns when the first of several certificates in PEM expires; nil: there is
// none.
func firstExpiry(content []byte) (first *time.Time) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return first
		}
		// The pool of authorities skips what it cannot parse, too.
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first == nil || certificate.NotAfter.Before(*first)) {
			first = &certificate.NotAfter
		}
	}
}
