package access

import "time"

// Expiries returns when the certificates in use expire: of the authority, and of the
// API's listener.
func (id *Identity) Expiries() map[string]time.Time {
	serving := id.provided.serving.Load()
	if serving == nil {
		serving = id.serving.Load()
	}
	expiries := map[string]time.Time{"authority": id.Authority.NotAfter}
	if serving != nil && serving.Leaf != nil {
		expiries["serving"] = serving.Leaf.NotAfter
	}
	return expiries
}
