// Package clients runs the real client programs (docker, skopeo, podman, helm and cosign)
// against the real server. Each script in testdata exercises one program, in the script
// language of test/kubectl. $AT is a repository path that no other script uses, with an
// image at $AT/app:v1 whose digest is $DIGEST. The command "engine" starts the Docker
// daemon.
//
// Building the programs takes many times as long as all other tests, so they run
// separately: make long RUN=clients.
package clients
