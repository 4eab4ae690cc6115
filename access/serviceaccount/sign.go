package serviceaccount

import (
	"fmt"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
)

// Sign returns a JWT of all these claims, signed by the key that signs now.
func (k *Keys) Sign(claims ...any) (string, error) {
	by := k.signing()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: by.private, KeyID: by.id}}, nil)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	builder := jwt.Signed(signer)
	for _, c := range claims {
		builder = builder.Claims(c)
	}
	return builder.CompactSerialize()
}

// Verify reads the claims of a JWT that one of the keys signed, and returns the id of
// that key. It checks the signature and nothing else. False: not such a token.
func (k *Keys) Verify(token string, claims ...any) (id string, ok bool) {
	parsed, err := jwt.ParseSigned(token)
	if err != nil || len(parsed.Headers) != 1 || parsed.Headers[0].Algorithm != string(jose.ES256) {
		return "", false
	}
	by, ok := k.find(parsed.Headers[0].KeyID)
	if !ok || parsed.Claims(&by.private.PublicKey, claims...) != nil {
		return "", false
	}
	return by.id, true
}

// Known reports whether the key with this id still verifies.
func (k *Keys) Known(id string) bool {
	_, ok := k.find(id)
	return ok
}
