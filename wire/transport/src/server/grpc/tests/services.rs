//! All methods except inference: metadata, the repository, health, reflection.

use std::time::Duration;

use futures::{StreamExt, stream};
use parm_protocol::grpc::{SERVICE, convert};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;

#[tokio::test]
async fn server_metadata_is_served() {
    let scene = Scene::new(Script::echo());
    let mut client = scene.client();
    assert!(client.server_live(proto::ServerLiveRequest {}).await.unwrap().into_inner().live);
    for ready in [true, false] {
        scene.script.ready.store(ready, Ordering::Relaxed);
        let answer = client.server_ready(proto::ServerReadyRequest {}).await.unwrap().into_inner();
        assert_eq!(answer.ready, ready);
    }
    let metadata = client.server_metadata(proto::ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!(convert::server_from_message(metadata), scene.script.server_metadata());
}

#[tokio::test]
async fn models_are_described() {
    let scene = Scene::new(Script::echo());
    let mut client = scene.client();
    let model = ModelRef::latest("m");
    let (name, version) = ("m".to_owned(), String::new());
    let ready = proto::ModelReadyRequest { name: name.clone(), version: version.clone() };
    assert!(client.model_ready(ready).await.unwrap().into_inner().ready);
    let asked = proto::ModelMetadataRequest { name: name.clone(), version: "1".into() };
    let metadata = client.model_metadata(asked).await.unwrap().into_inner();
    assert_eq!(convert::metadata_from_message(metadata), scene.script.model_metadata(&model).unwrap());
    let asked = proto::ModelConfigRequest { name: name.clone(), version: version.clone() };
    let config = client.model_config(asked).await.unwrap().into_inner().config.unwrap();
    assert_eq!(convert::config_from_message(config), scene.script.model_config(&model).unwrap());
    for (name, of) in [(name, Some(&model)), (String::new(), None)] {
        let asked = proto::ModelStatisticsRequest { name, version: version.clone() };
        let found = client.model_statistics(asked).await.unwrap().into_inner().model_stats;
        let found: Vec<_> = found.into_iter().map(convert::statistics_from_message).collect();
        assert_eq!(found, scene.script.statistics(of).unwrap());
    }
}

#[tokio::test]
async fn unknown_models_and_versions_are_not_found() {
    let scene = Scene::new(Script::echo());
    let mut client = scene.client();
    for (name, version, words) in [("w", "", "unknown model 'w'"), ("m", "7", "no version '7'")] {
        let (name, version) = (name.to_owned(), version.to_owned());
        let ready = proto::ModelReadyRequest { name: name.clone(), version: version.clone() };
        says(&client.model_ready(ready).await.unwrap_err(), Code::NotFound, words);
        let metadata = proto::ModelMetadataRequest { name: name.clone(), version: version.clone() };
        says(&client.model_metadata(metadata).await.unwrap_err(), Code::NotFound, words);
        let config = proto::ModelConfigRequest { name: name.clone(), version: version.clone() };
        says(&client.model_config(config).await.unwrap_err(), Code::NotFound, words);
        let statistics = proto::ModelStatisticsRequest { name, version };
        says(&client.model_statistics(statistics).await.unwrap_err(), Code::NotFound, words);
    }
}

#[tokio::test]
async fn the_repository_is_listed_and_changed() {
    let scene = Scene::new(Script::echo());
    let mut client = scene.client();
    for (ready, names) in [(true, vec!["m"]), (false, vec!["m", "b"])] {
        let asked = proto::RepositoryIndexRequest { ready, ..Default::default() };
        let index = client.repository_index(asked).await.unwrap().into_inner().models;
        assert_eq!(index.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), names);
    }
    for (name, code) in [("m", Code::Ok), ("w", Code::NotFound)] {
        let model_name = name.to_owned();
        let load = proto::RepositoryModelLoadRequest { model_name: model_name.clone(), ..Default::default() };
        let unload = proto::RepositoryModelUnloadRequest { model_name, ..Default::default() };
        let loaded = client.repository_model_load(load).await;
        assert_eq!(loaded.err().map_or(Code::Ok, |status| status.code()), code);
        let unloaded = client.repository_model_unload(unload).await;
        assert_eq!(unloaded.err().map_or(Code::Ok, |status| status.code()), code);
    }
    let config = ("config".to_owned(), proto::ModelRepositoryParameter::default());
    let parameters = [config].into_iter().collect();
    let replacing =
        proto::RepositoryModelLoadRequest { model_name: "m".into(), parameters, ..Default::default() };
    let status = client.repository_model_load(replacing).await.unwrap_err();
    says(&status, Code::InvalidArgument, "a load cannot replace 'config'");
    assert_eq!(*scene.script.changed.lock(), ["+m", "-m"]);
}

#[tokio::test]
async fn health_is_readiness() {
    let scene = Scene::new(Script::echo());
    let mut client = HealthClient::new(scene.channel());
    for (ready, expected) in [(true, ServingStatus::Serving), (false, ServingStatus::NotServing)] {
        scene.script.ready.store(ready, Ordering::Relaxed);
        for service in ["", SERVICE] {
            let asked = HealthCheckRequest { service: service.into() };
            assert_eq!(client.check(asked).await.unwrap().into_inner().status(), expected);
        }
    }
    let status = client.check(HealthCheckRequest { service: "other".into() }).await.unwrap_err();
    says(&status, Code::NotFound, "unknown service 'other'");
}

#[tokio::test(start_paused = true)]
async fn health_watch_reports_changes_and_the_end() {
    let scene = Scene::new(Script::echo());
    let mut client = HealthClient::new(scene.channel());
    let watch = client.watch(HealthCheckRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    for (ready, expected) in [(false, ServingStatus::NotServing), (true, ServingStatus::Serving)] {
        scene.script.ready.store(ready, Ordering::Relaxed);
        let told = tokio::time::timeout(Duration::from_secs(2), watch.message()).await.unwrap();
        assert_eq!(told.unwrap().unwrap().status(), expected);
    }
    // Both at once, as with a drain delay of zero: the last status is still that the server does not serve.
    scene.script.ready.store(false, Ordering::Relaxed);
    scene.grpc.shared.drain.begun.cancel();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watch.message().await.unwrap(), None);
}

#[tokio::test]
async fn watch_of_an_unknown_service_reports_it() {
    let scene = Scene::new(Script::echo());
    let mut client = HealthClient::new(scene.channel());
    let watch = client.watch(HealthCheckRequest { service: "other".into() }).await.unwrap();
    let told = watch.into_inner().message().await.unwrap().unwrap();
    assert_eq!(told.status(), ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn garbage_health_check_is_malformed() {
    let scene = Scene::new(Script::echo());
    for method in ["Check", "Watch"] {
        let path = format!("/grpc.health.v1.Health/{method}");
        let status = scene.raw().await.call(&path, &b"\0\0\0\0\x01\xff"[..]).await;
        says(&status, Code::InvalidArgument, "decode");
        assert_eq!(scene.rejected(), ["invalid_argument"]);
    }
}

const SERVICES: [&str; 4] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    SERVICE,
];

/// Lists services and finds the file of a method, over one version of reflection.
macro_rules! reflects {
    ($scene:ident, $version:ident) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

        let asked = [
            MessageRequest::ListServices(String::new()),
            MessageRequest::FileContainingSymbol("inference.GRPCInferenceService.ModelInfer".into()),
        ]
        .map(|asked| ServerReflectionRequest { message_request: Some(asked), ..Default::default() });
        let mut client = ServerReflectionClient::new($scene.channel());
        let mut answers = client.server_reflection_info(stream::iter(asked)).await.unwrap().into_inner();
        let list = answers.message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(list)) = list else { panic!("{list:?}") };
        let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        names.sort();
        assert_eq!(names, SERVICES);
        let file = answers.message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::FileDescriptorResponse(file)) = file else { panic!("{file:?}") };
        let file = &file.file_descriptor_proto[0];
        assert!(file.windows(17).any(|window| window == b"ModelInferRequest"));
    }};
}

#[tokio::test]
async fn reflection_lists_every_service_in_both_versions() {
    let scene = Scene::new(Script::echo());
    reflects!(scene, v1);
    reflects!(scene, v1alpha);
}

#[tokio::test(start_paused = true)]
async fn arriving_requests_count_against_the_byte_budget() {
    const PART: usize = 300_000;
    for path in ["grpc.health.v1.Health/Watch", "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"] {
        let scene = Scene::new(Script::echo());
        let mut raw = scene.raw().await;
        let length = (PART as u32 + 1).to_be_bytes();
        let part = [&[0][..], &length, &vec![0; PART]].concat();
        let begun = stream::iter([Ok(hyper::body::Frame::data(Bytes::from(part)))]).chain(stream::pending());
        let body = BodyExt::boxed(http_body_util::StreamBody::new(begun));
        let path = format!("/{path}");
        let asking = tokio::spawn(async move { raw.send(&path, body).await });
        let budget = &scene.grpc.shared.budget;
        for _ in 0..1000 {
            if budget.held() >= PART {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(budget.held() >= PART, "{} bytes are counted", budget.held());
        asking.abort();
        let _ = asking.await;
    }
}

#[tokio::test]
async fn reflection_holds_bounded_bytes_when_asked_without_end() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    const SIZE: usize = 10_000;
    const MOST: usize = 1 << 20;

    let scene = Scene::new(Script::echo());
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let questions = stream::unfold(asked, |mut asked| async move { Some((asked.recv().await?, asked)) });
    let mut client = ServerReflectionClient::new(scene.channel());
    let question = ServerReflectionRequest {
        host: "x".repeat(SIZE),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    ask.send(question.clone()).await.unwrap();
    let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
    let mut answered = 0;
    // Each is answered before the next one is asked, three times as many bytes as a call may have.
    while answered < 3 * MOST / SIZE {
        let Ok(Some(_)) = answers.message().await else { break };
        answered += 1;
        if ask.send(question.clone()).await.is_err() {
            break;
        }
    }
    let held = scene.grpc.shared.budget.held();
    assert!(answered > MOST / SIZE / 2, "{answered} answers");
    assert!(held <= MOST + 2 * SIZE, "{held} bytes are held after {answered} answers");
}
