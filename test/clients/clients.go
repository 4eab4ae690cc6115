// Package clients has the programs that people have, not their libraries, push
// to the real server and do everything else that they do: docker, skopeo,
// podman, helm and cosign. Each script in testdata is one program, in the language of
// test/kubectl; $AT is a repository path that no other script uses, with an
// image at $AT/app:v1 whose digest is $DIGEST. The command "engine" starts
// docker's.
//
// Building them takes many times as long as all other tests, so they are not
// part of those: make clients runs them.
package clients
