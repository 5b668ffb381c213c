// Command constant is a mutating webhook that always answers the same: it sends every pod to the edge, or what else it is given as
// a patch. It is what any webhook costs, with nothing but Go's standard library.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
)

// Of an AdmissionReview, what the answer needs.
type review struct {
	Request struct {
		UID string `json:"uid"`
	} `json:"request"`
}

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	Patch     []byte `json:"patch"`
	PatchType string `json:"patchType"`
}

var patch = []byte(`[{"op":"add","path":"/spec/nodeSelector","value":{"node.role/edge":"true"}}]`)

func mutate(writer http.ResponseWriter, request *http.Request) {
	var asked review
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	given := response{UID: asked.Request.UID, Allowed: true, Patch: patch, PatchType: "JSONPatch"}
	if err := json.NewEncoder(writer).Encode(answer{"admission.k8s.io/v1", "AdmissionReview", given}); err != nil {
		log.Print(err)
	}
}

func main() {
	switch len(os.Args) {
	case 4:
	case 5:
		patch = []byte(os.Args[4])
	default:
		log.Fatal("usage: constant ADDRESS CERTIFICATE KEY [PATCH]")
	}
	http.HandleFunc("POST /mutate", mutate)
	// Towards a Service, as webhooks are called in production, the API server speaks HTTP/1.1 alone.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := http.Server{Addr: os.Args[1], Protocols: &protocols}
	log.Fatal(server.ListenAndServeTLS(os.Args[2], os.Args[3]))
}
